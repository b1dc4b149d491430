//! Arguments of `tollgate switch`.

use std::time::Duration;

use clap::{Args, Subcommand};
use tollgate_control::SwitchMode;

use crate::settings::parsers::{count, percentage, positive_duration};

/// Command about the switches of rules.
#[derive(Clone, Debug, Subcommand)]
pub enum SwitchCommand {
    /// List the active switches.
    List,
    /// Set the switch of a rule.
    Set {
        /// `off`: the rule does not limit. `shadow`: requests over the limit are counted and allowed. `emergency`: each
        /// instance decides all rules of the domain by itself, without Redis.
        #[arg(value_name = "off|shadow|emergency", value_parser = mode)]
        mode: SwitchMode,
        #[command(flatten)]
        rule: RuleSelector,
        /// With `shadow`: the percentage of keys for which the rule is enforced nevertheless. Default: 0.
        #[arg(long, value_name = "PERCENT", value_parser = percentage)]
        enforce_percent: Option<f64>,
        /// Reason, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Lifetime of the switch. Default: until it is removed.
        #[arg(long = "for", value_name = "DURATION", value_parser = positive_duration)]
        lifetime: Option<Duration>,
    },
    /// Enforce a rule for more and more of its keys. One instance advances the ramp, and sets it back if too many keys are
    /// denied.
    Ramp {
        #[command(flatten)]
        rule: RuleSelector,
        /// Percentages of keys, each above the one before.
        #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', required = true, value_parser = percentage)]
        steps: Vec<f64>,
        /// Time of all steps together, which last equally long.
        #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
        over: Duration,
        /// Percentage of denied keys, of those that are enforced, above which the ramp is rolled back.
        #[arg(long, value_name = "PERCENT", value_parser = percentage)]
        max_denied: f64,
        /// Hits of enforced keys without which a step is not judged, and does not end.
        #[arg(long, value_name = "COUNT", default_value = "100", value_parser = count::<u32>)]
        min_hits: u32,
        /// Reason, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Remove the switch of a rule, which is then enforced again.
    Remove {
        #[command(flatten)]
        rule: RuleSelector,
    },
}

/// Rule of a switch.
#[derive(Args, Clone, Debug)]
pub struct RuleSelector {
    /// Domain of the rule. `*`: every domain, for an emergency.
    #[arg(long, value_name = "NAME")]
    pub domain: String,
    /// Path of the rule, as in `/rlconfig` and metrics: `tenant_acme.path`. `*`: all rules, for an emergency.
    #[arg(long, value_name = "PATH")]
    pub rule: String,
}

fn mode(text: &str) -> Result<SwitchMode, String> {
    let known = SwitchMode::ALL.into_iter().find(|mode| mode.name() == text);
    known.ok_or_else(|| "expected off, shadow or emergency".to_owned())
}
