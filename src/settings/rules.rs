//! Settings of the rules.

use std::path::PathBuf;

use clap::{ArgAction::Set, Args};
use tollgate_flags::{Problem, boolean, named};
use tollgate_rules::config::{Options, ReadingFlags};
use tollgate_store::StoreSettings;
use tollgate_xds::XdsSettings;

pub(super) use tollgate_control::RulesSource;

/// Source of the rules, and its options.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Rules")]
pub struct RulesSettings {
    /// Directory of the rules: every .yaml and .yml file in it and in its subdirectories. Changes take effect without a
    /// restart. With `--rules redis` or `memory`, the files are the first version and are read once.
    #[arg(id = "config", long, value_name = "DIR", default_value = "config/default")]
    pub directory: PathBuf,
    /// Source of the rules: `directory` (the files of --config), `redis` (versions in the Redis of --store, shared by all
    /// instances and changed through the admin API), `memory` (versions in this process), or `xds` (the control plane of
    /// --xds-server).
    #[arg(id = "rules", long, value_name = "SOURCE", default_value = "directory")]
    #[arg(value_parser = named(RulesSource::ALL, RulesSource::name), hide_possible_values = true)]
    pub source: RulesSource,
    /// Directory in which this instance keeps overrides, list entries and switches, which are active from the start and
    /// restored if Redis has lost them, and the last version of `--rules redis`, from which it starts while Redis does not
    /// respond. It is created with mode 0700 if missing; no two instances share one.
    #[arg(long, value_name = "DIR")]
    pub state_directory: Option<PathBuf>,
    /// Flags of how files are read.
    #[command(flatten)]
    pub reading: ReadingFlags,
    /// Startup without valid rules: the instance is not ready and responds UNAVAILABLE until rules are loaded. Otherwise
    /// an invalid configuration fails startup with exit code 1, and startup waits for a control plane.
    #[arg(long, value_name = "BOOL", default_value = "false", action = Set, value_parser = boolean)]
    pub start_without_rules: bool,
    /// Control plane of `--rules xds`.
    #[command(flatten)]
    pub xds: XdsSettings,
    /// Options for reading the files: `reading`, and what other flags state.
    #[arg(skip)]
    pub options: Options,
}

impl RulesSettings {
    pub(super) fn check(&self, store: &StoreSettings) -> Result<(), Problem> {
        let fails = |flag, reason| Err(Problem::new(flag, reason));
        match (self.source, store.redis(), &self.xds.server) {
            (RulesSource::Redis, None, _) => {
                return fails("--rules", "`redis` without a Redis; expected --store with its URL");
            }
            (RulesSource::Memory, Some(_), _) => {
                return fails("--rules", "`memory` with a Redis store; expected redis, or --store memory");
            }
            (RulesSource::Redis | RulesSource::Memory, ..) if self.reading.rules_overlay.is_some() => {
                return fails("--rules-overlay", "only for --rules directory or xds");
            }
            (RulesSource::Xds, _, None) => {
                return fails("--rules", "`xds` without a control plane; expected --xds-server");
            }
            (RulesSource::Xds, _, Some(_)) | (_, _, None) => {}
            (_, _, Some(_)) => return fails("--xds-server", "only for --rules xds"),
        }
        let tls_flags = [
            ("--xds-ca", self.xds.authorities.is_some()),
            ("--xds-client-cert", self.xds.client.is_some()),
            ("--xds-server-name", self.xds.server_name.is_some()),
        ];
        match tls_flags.into_iter().find(|(_, is_set)| *is_set && !self.xds.has_tls()) {
            Some((flag, _)) => fails(flag, "requires --xds-server with an https:// URL"),
            None => Ok(()),
        }
    }
}
