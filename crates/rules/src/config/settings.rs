//! Flags of how files of rules are read.

use std::path::PathBuf;

use clap::{ArgAction::Set, Args};
use tollgate_flags::boolean;

use super::{Options, OverlaySlot};

/// Options for reading the files, which `check` and `explain` have too.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Rules")]
pub struct ReadingFlags {
    /// Directory of files whose keys replace those of the rules that their patterns match: for rules that a control
    /// plane pushes, or that others generate. A server applies changes of these files without a restart.
    #[arg(long, value_name = "DIR")]
    pub rules_overlay: Option<PathBuf>,
    /// Merging of the descriptors of several files with the same domain, which is an error otherwise.
    #[arg(long, value_name = "BOOL", default_value = "false", action = Set, value_parser = boolean)]
    merge_domains: bool,
    /// Treats warnings as errors.
    #[arg(long, value_name = "BOOL", default_value = "false", action = Set, value_parser = boolean)]
    strict: bool,
    /// Accepts an empty directory, and in a server a change that removes more than half of the active rules at once, as
    /// a file `.allow-empty` in the directory does. Otherwise a server refuses such a change and keeps the active
    /// rules.
    #[arg(long, value_name = "BOOL", default_value = "false", action = Set, value_parser = boolean)]
    allow_empty: bool,
    /// Charges a denied request only to the limit that denies it, in domains that do not state `atomic`. By default a
    /// denied request is charged to all of its limits.
    #[arg(long, value_name = "BOOL", default_value = "false", action = Set, value_parser = boolean)]
    stop_when_denied: bool,
}

impl ReadingFlags {
    /// Options for reading the files.
    pub fn options(&self) -> Options {
        Options {
            merge_domains: self.merge_domains,
            strict: self.strict,
            allow_empty: self.allow_empty,
            overlay: self.rules_overlay.clone().map(OverlaySlot::leaked),
            stop_when_denied: self.stop_when_denied,
            ..Default::default()
        }
    }
}
