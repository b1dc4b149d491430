//! Arguments of `tollgate override`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{AdminClientSettings, AdminCommand, connection::ConnectionFlags, lists::path_id};
use crate::settings::{
    DescriptorArgument,
    error::Problem,
    parsers::{count, descriptor, positive_duration},
};

#[derive(Args, Debug)]
pub(in crate::settings) struct OverrideFlags {
    #[command(subcommand)]
    subcommand: OverrideSubcommand,
    #[command(flatten)]
    connection: ConnectionFlags,
}

#[derive(Debug, Subcommand)]
enum OverrideSubcommand {
    /// List the active overrides.
    List {
        /// Only those of this domain.
        #[arg(long, value_name = "NAME")]
        domain: Option<String>,
        /// Only those of the rule with this path.
        #[arg(long, value_name = "PATH")]
        rule: Option<String>,
        /// Maximum number of overrides.
        #[arg(long, value_name = "COUNT", default_value = "100", value_parser = count::<usize>)]
        limit: usize,
    },
    /// Set the override of a rule, or of one key of it, in place of an earlier one.
    Set {
        /// Domain of the rule.
        #[arg(long, value_name = "NAME")]
        domain: String,
        /// Path of the rule, as in `/rlconfig` and metrics: `tenant_acme.path`.
        #[arg(long, value_name = "PATH")]
        rule: String,
        /// Entries that the rule leaves open, separated by commas as for `explain`: the override is for the counter with
        /// these values.
        /// Default: for all counters of the rule.
        #[arg(long, value_name = "KEY=VALUE,…", value_parser = descriptor)]
        counter: Option<DescriptorArgument>,
        /// Keys of `rate_limit` with their values: `requests_per_unit=5000`, `unit=minute`, `burst=500`. What is not
        /// stated stays as in the rule.
        #[arg(value_name = "KEY=VALUE", required = true, value_parser = limit)]
        rate_limit: Vec<LimitArgument>,
        /// Reason, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Lifetime of the override. Default: until it is removed.
        #[arg(long = "for", value_name = "DURATION", value_parser = positive_duration)]
        lifetime: Option<Duration>,
        /// Skips the guardrails: accepts a limit that denies all requests of the rule.
        #[arg(long)]
        force: bool,
    },
    /// Set the overrides of a file: one JSON object a line, with `domain`, `rule`, `key`, `rate_limit` and
    /// `expires_in_s`.
    Import {
        /// The file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Reason, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Skips the guardrails.
        #[arg(long)]
        force: bool,
    },
    /// Remove an override: the limit of the rule applies again.
    Remove {
        /// Id of the override, from `list`.
        #[arg(value_name = "ID", value_parser = path_id)]
        id: String,
    },
}

/// Key of `rate_limit` with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitArgument {
    /// Key.
    pub key: String,
    /// Value; null to remove the key.
    pub value: Value,
}

/// Command about the overrides of rules.
#[derive(Clone, Debug)]
pub enum OverrideCommand {
    /// List overrides.
    Show {
        /// Domain, if only one.
        domain: Option<String>,
        /// Rule, if only one.
        rule: Option<String>,
        /// Maximum number.
        limit: usize,
    },
    /// Set an override.
    Set {
        /// Domain of the rule.
        domain: String,
        /// Path of the rule.
        rule: String,
        /// Key; `None` for the whole rule.
        key: Option<DescriptorArgument>,
        /// Keys of `rate_limit`.
        rate_limit: Vec<LimitArgument>,
        /// Reason.
        reason: String,
        /// Lifetime. `None`: until it is removed.
        lifetime: Option<Duration>,
        /// Whether guardrails are overridden.
        force: bool,
    },
    /// Set the overrides of a file.
    Import {
        /// The file.
        file: PathBuf,
        /// Reason.
        reason: String,
        /// Whether guardrails are overridden.
        force: bool,
    },
    /// Remove the override with this id.
    Remove(String),
}

impl OverrideFlags {
    pub(in crate::settings) fn resolve(self) -> Result<AdminClientSettings, Problem> {
        let command = match self.subcommand {
            OverrideSubcommand::List { domain, rule, limit } => OverrideCommand::Show { domain, rule, limit },
            OverrideSubcommand::Set { domain, rule, counter: key, rate_limit, reason, lifetime, force } => {
                OverrideCommand::Set { domain, rule, key, rate_limit, reason, lifetime, force }
            }
            OverrideSubcommand::Import { file, reason, force } => {
                OverrideCommand::Import { file, reason, force }
            }
            OverrideSubcommand::Remove { id } => OverrideCommand::Remove(id),
        };
        self.connection.resolve(AdminCommand::Override(command))
    }
}

/// Parses a key and its value, which is JSON if it looks so and a text otherwise.
fn limit(text: &str) -> Result<LimitArgument, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            Ok(LimitArgument { key: key.to_owned(), value })
        }
        _ => Err("expected a key of rate_limit with its value, such as requests_per_unit=500".to_owned()),
    }
}
