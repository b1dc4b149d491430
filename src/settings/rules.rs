//! Where the rules are.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::value::boolean;

/// Where the rules are, and how to read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesSettings {
    /// The directory with the YAML files.
    pub directory: PathBuf,
    /// How its files are read.
    pub options: crate::config::Options,
    /// Whether to open the ports before there are rules to enforce.
    pub start_without_rules: bool,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Rules")]
pub(super) struct RulesFlags {
    /// Directory with the rules: every .yaml and .yml file in it and below. Changes take effect without a restart.
    #[arg(long, value_name = "DIR", default_value = "config/default")]
    config: PathBuf,
    #[command(flatten)]
    reading: ReadingFlags,
    /// Open the ports although there are no valid rules yet, and answer UNAVAILABLE until there are.
    /// Otherwise an invalid configuration ends the start with exit code 1.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    start_without_rules: bool,
}

/// How the files are read; `check` takes these too.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Rules")]
pub(super) struct ReadingFlags {
    /// Files may state the same domain: their descriptors are merged. Otherwise that is an error.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    merge_domains: bool,
    /// Whatever would be warned about is an error.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    strict: bool,
}

impl ReadingFlags {
    pub(super) const fn resolve(self) -> crate::config::Options {
        crate::config::Options { merge_domains: self.merge_domains, strict: self.strict }
    }
}

impl RulesFlags {
    pub(super) fn resolve(self) -> RulesSettings {
        RulesSettings {
            directory: self.config,
            options: self.reading.resolve(),
            start_without_rules: self.start_without_rules,
        }
    }
}
