//! Arguments of `tollgate switch`.

use std::time::Duration;

use clap::{Args, Subcommand};
use tollgate_control::SwitchMode;

use super::{AdminClientSettings, AdminCommand, connection::ConnectionFlags};
use crate::settings::{error::Problem, parsers::positive_duration};

#[derive(Args, Debug)]
pub(in crate::settings) struct SwitchFlags {
    #[command(subcommand)]
    subcommand: SwitchSubcommand,
    #[command(flatten)]
    connection: ConnectionFlags,
}

#[derive(Debug, Subcommand)]
enum SwitchSubcommand {
    /// List the active switches.
    List,
    /// Set the switch of a rule.
    Set {
        /// `off`: the rule does not limit. `shadow`: requests over the limit are counted and allowed. `emergency`: each
        /// instance decides all rules of the domain by itself, without Redis.
        #[arg(value_name = "off|shadow|emergency", value_parser = mode)]
        mode: SwitchMode,
        #[command(flatten)]
        rule: RuleFlags,
        /// Reason, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Lifetime of the switch. Default: until it is removed.
        #[arg(long = "for", value_name = "DURATION", value_parser = positive_duration)]
        lifetime: Option<Duration>,
    },
    /// Remove the switch of a rule, which is then enforced again.
    Remove {
        #[command(flatten)]
        rule: RuleFlags,
    },
}

#[derive(Args, Debug)]
struct RuleFlags {
    /// Domain of the rule. `*`: every domain, for an emergency.
    #[arg(long, value_name = "NAME")]
    domain: String,
    /// Path of the rule, as in `/rlconfig` and metrics: `tenant_acme.path`. `*`: all rules, for an emergency.
    #[arg(long, value_name = "PATH")]
    rule: String,
}

/// Command about the switches of rules.
#[derive(Clone, Debug)]
pub enum SwitchCommand {
    /// List the active switches.
    Show,
    /// Set a switch.
    Set {
        /// Domain of the rule.
        domain: String,
        /// Path of the rule.
        rule: String,
        /// Mode.
        mode: SwitchMode,
        /// Reason.
        reason: String,
        /// Lifetime. `None`: until it is removed.
        lifetime: Option<Duration>,
    },
    /// Remove a switch.
    Remove {
        /// Domain of the rule.
        domain: String,
        /// Path of the rule.
        rule: String,
    },
}

impl SwitchFlags {
    pub(in crate::settings) fn resolve(self) -> Result<AdminClientSettings, Problem> {
        let command = match self.subcommand {
            SwitchSubcommand::List => SwitchCommand::Show,
            SwitchSubcommand::Set { mode, rule: RuleFlags { domain, rule }, reason, lifetime } => {
                SwitchCommand::Set { domain, rule, mode, reason, lifetime }
            }
            SwitchSubcommand::Remove { rule: RuleFlags { domain, rule } } => {
                SwitchCommand::Remove { domain, rule }
            }
        };
        self.connection.resolve(AdminCommand::Switch(command))
    }
}

fn mode(text: &str) -> Result<SwitchMode, String> {
    let known = SwitchMode::ALL.into_iter().find(|mode| mode.name() == text);
    known.ok_or_else(|| "expected off, shadow or emergency".to_owned())
}
