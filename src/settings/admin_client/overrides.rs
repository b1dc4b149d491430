//! Arguments of `tollgate override`.

use std::{path::PathBuf, time::Duration};

use clap::Subcommand;
use serde_json::Value;

use super::lists::path_id;
use crate::settings::{
    DescriptorArgument,
    parsers::{count, descriptor, positive_duration},
};

/// Command about the overrides of rules.
#[derive(Clone, Debug, Subcommand)]
pub enum OverrideCommand {
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
