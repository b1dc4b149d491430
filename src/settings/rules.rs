//! Where the rules are.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use super::{
    error::Problem,
    parsers::boolean,
    store::StoreSettings,
    xds::{XdsFlags, XdsSettings},
};
use crate::control::RulesSource;

/// Where the rules are, and how to read them.
#[derive(Clone, Debug, PartialEq)]
pub struct RulesSettings {
    /// Where they come from.
    pub source: RulesSource,
    /// The directory with the YAML files; where rules have versions, the first one is made of them.
    pub directory: PathBuf,
    /// Where versions that live in this process are kept on disk, if they are.
    pub file: Option<PathBuf>,
    /// The control plane, where they come from one.
    pub xds: Option<XdsSettings>,
    /// How its files are read.
    pub options: crate::config::Options,
    /// Whether to open the ports before there are rules to enforce.
    pub start_without_rules: bool,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Rules")]
pub(super) struct RulesFlags {
    /// Directory with the rules: every .yaml and .yml file in it and below. Changes take effect without a restart.
    /// Where rules have versions, they are the first version, and are not read again.
    #[arg(long, value_name = "DIR", default_value = "config/default")]
    config: PathBuf,
    /// Where the rules come from: `directory` (the files of --config), `redis` (versions in the Redis of --store, which
    /// all instances share and operators change by the admin port), `memory` (versions in this process), or `xds` (what
    /// the control plane of --xds-server sends).
    #[arg(long, value_name = "SOURCE", default_value = "directory")]
    rules: Source,
    /// File that keeps the versions, lists and switches of `--rules memory`, so that they outlive the process.
    #[arg(long, value_name = "FILE")]
    rules_file: Option<PathBuf>,
    #[command(flatten)]
    reading: ReadingFlags,
    /// Open the ports although there are no valid rules yet, and answer UNAVAILABLE until there are. Otherwise an
    /// invalid configuration ends the start with exit code 1, and the start waits for what a control plane sends.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    start_without_rules: bool,
    #[command(flatten)]
    xds: XdsFlags,
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

/// The sources as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Source {
    Directory,
    Redis,
    Memory,
    Xds,
}

impl RulesFlags {
    /// The settings, if the rules may come from there where counters live in `store`.
    pub(super) fn resolve(self, store: &StoreSettings) -> Result<RulesSettings, Problem> {
        let source = match (self.rules, store) {
            (Source::Directory, _) => RulesSource::Directory,
            (Source::Redis, StoreSettings::Redis { .. }) => RulesSource::Redis,
            (Source::Memory, StoreSettings::Memory { .. }) => RulesSource::Memory,
            (Source::Xds, _) => RulesSource::Xds,
            (Source::Redis, StoreSettings::Memory { .. }) => {
                return Err(Problem::new("--rules", "redis needs a Redis: --store with its URL"));
            }
            (Source::Memory, StoreSettings::Redis { .. }) => {
                return Err(Problem::new("--rules", "memory is for --store memory; use redis"));
            }
        };
        if self.rules_file.is_some() && source != RulesSource::Memory {
            return Err(Problem::new("--rules-file", "needs --rules memory"));
        }
        let xds = self.xds.resolve()?;
        match (source, &xds) {
            (RulesSource::Xds, None) => return Err(Problem::new("--rules", "xds needs --xds-server")),
            (RulesSource::Xds, Some(_)) | (_, None) => {}
            (_, Some(_)) => return Err(Problem::new("--xds-server", "needs --rules xds")),
        }
        Ok(RulesSettings {
            source,
            directory: self.config,
            file: self.rules_file,
            xds,
            options: self.reading.resolve(),
            start_without_rules: self.start_without_rules,
        })
    }
}
