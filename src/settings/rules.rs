//! Settings of the rules.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, ValueEnum};
use tollgate_control::RulesSource;
use tollgate_rules::config::OverlaySlot;

use super::{
    error::Problem,
    parsers::boolean,
    store::StoreSettings,
    xds::{XdsFlags, XdsSettings},
};

/// Source of the rules, and its options.
#[derive(Clone, Debug, PartialEq)]
pub struct RulesSettings {
    /// Kind of source.
    pub source: RulesSource,
    /// Directory of the YAML files, which are the first version where rules have versions.
    pub directory: PathBuf,
    /// File that keeps the overrides of rules.
    pub overrides_file: Option<PathBuf>,
    /// Control plane of `--rules xds`.
    pub xds: Option<XdsSettings>,
    /// Directory of files that are laid over the rules.
    pub overlay: Option<PathBuf>,
    /// Options for reading the files.
    pub options: tollgate_rules::config::Options,
    /// Whether to open the ports without valid rules.
    pub start_without_rules: bool,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Rules")]
pub(super) struct RulesFlags {
    /// Directory of the rules: every .yaml and .yml file in it and in its subdirectories. Changes take effect without a
    /// restart. With `--rules redis` or `memory`, the files are the first version and are read once.
    #[arg(long, value_name = "DIR", default_value = "config/default")]
    config: PathBuf,
    /// Source of the rules: `directory` (the files of --config), `redis` (versions in the Redis of --store, shared by all
    /// instances and changed through the admin API), `memory` (versions in this process), or `xds` (the control plane of
    /// --xds-server).
    #[arg(long, value_name = "SOURCE", default_value = "directory", hide_possible_values = true)]
    rules: Source,
    /// File in which this instance keeps the overrides of rules, with mode 0600 and a lock file beside it: they are active
    /// from the start, and restored if Redis has lost them.
    #[arg(long, value_name = "FILE")]
    overrides_file: Option<PathBuf>,
    #[command(flatten)]
    reading: ReadingFlags,
    /// Startup without valid rules: the instance is not ready and responds UNAVAILABLE until rules are loaded. Otherwise
    /// an invalid configuration fails startup with exit code 1, and startup waits for a control plane.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    start_without_rules: bool,
    #[command(flatten)]
    xds: XdsFlags,
}

/// Options for reading the files, which `check` and `explain` have too.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Rules")]
pub(super) struct ReadingFlags {
    /// Directory of files whose keys replace those of the rules that their patterns match: for rules that a control
    /// plane pushes, or that others generate. A server applies changes of these files without a restart.
    #[arg(long, value_name = "DIR")]
    rules_overlay: Option<PathBuf>,
    /// Merging of the descriptors of several files with the same domain, which is an error otherwise.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    merge_domains: bool,
    /// Treats warnings as errors.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    strict: bool,
    /// Accepts an empty directory, and in a server a change that removes more than half of the active rules at once, as
    /// a file `.allow-empty` in the directory does. Otherwise a server refuses such a change and keeps the active
    /// rules.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    allow_empty: bool,
    /// Charges a denied request only to the limit that denies it, in domains that do not state `atomic`. By default a
    /// denied request is charged to all of its limits.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    stop_when_denied: bool,
}

impl ReadingFlags {
    /// Directory of the overlay.
    pub(super) fn overlay(&self) -> Option<&Path> {
        self.rules_overlay.as_deref()
    }

    pub(super) fn resolve(&self) -> tollgate_rules::config::Options {
        tollgate_rules::config::Options {
            merge_domains: self.merge_domains,
            strict: self.strict,
            allow_empty: self.allow_empty,
            overlay: self.rules_overlay.as_ref().map(|_| OverlaySlot::leaked()),
            stop_when_denied: self.stop_when_denied,
            ..Default::default()
        }
    }
}

/// Kind of source, as the flag states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Source {
    Directory,
    Redis,
    Memory,
    Xds,
}

impl RulesFlags {
    /// Resolves the flags, if the source is compatible with `store`.
    pub(super) fn resolve(self, store: &StoreSettings) -> Result<RulesSettings, Problem> {
        let source = match (self.rules, store) {
            (Source::Directory, _) => RulesSource::Directory,
            (Source::Redis, StoreSettings::Redis { .. }) => RulesSource::Redis,
            (Source::Memory, StoreSettings::Memory { .. }) => RulesSource::Memory,
            (Source::Xds, _) => RulesSource::Xds,
            (Source::Redis, StoreSettings::Memory { .. }) => {
                return Err(Problem::new(
                    "--rules",
                    "`redis` without a Redis; expected --store with its URL",
                ));
            }
            (Source::Memory, StoreSettings::Redis { .. }) => {
                return Err(Problem::new(
                    "--rules",
                    "`memory` with a Redis store; expected redis, or --store memory",
                ));
            }
        };
        if self.reading.overlay().is_some() && !matches!(source, RulesSource::Directory | RulesSource::Xds) {
            return Err(Problem::new("--rules-overlay", "only for --rules directory or xds"));
        }
        let xds = self.xds.resolve()?;
        match (source, &xds) {
            (RulesSource::Xds, None) => {
                return Err(Problem::new("--rules", "`xds` without a control plane; expected --xds-server"));
            }
            (RulesSource::Xds, Some(_)) | (_, None) => {}
            (_, Some(_)) => return Err(Problem::new("--xds-server", "only for --rules xds")),
        }
        Ok(RulesSettings {
            source,
            directory: self.config,
            overrides_file: self.overrides_file,
            xds,
            overlay: self.reading.overlay().map(Path::to_owned),
            options: self.reading.resolve(),
            start_without_rules: self.start_without_rules,
        })
    }
}
