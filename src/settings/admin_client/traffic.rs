//! Arguments of `tollgate top`, `tollgate events`, `tollgate candidates` and `tollgate recommend`.

use clap::Args;

use super::{AdminClientSettings, AdminCommand, connection::ConnectionFlags};
use crate::settings::{error::Problem, parsers::whole};

#[derive(Args, Debug)]
pub(in crate::settings) struct TopFlags {
    /// Domain. Default: all.
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// Maximum number of keys of each table.
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = |text: &str| whole::<u16>(text, 1..=100))]
    limit: u16,
    /// Only the instance that answers.
    #[arg(long)]
    instance: bool,
    #[command(flatten)]
    connection: ConnectionFlags,
}

#[derive(Args, Debug)]
pub(in crate::settings) struct EventsFlags {
    /// Maximum number of events.
    #[arg(long, value_name = "COUNT", default_value = "20", value_parser = |text: &str| whole::<u16>(text, 1..=1000))]
    limit: u16,
    #[command(flatten)]
    connection: ConnectionFlags,
}

#[derive(Args, Debug)]
pub(in crate::settings) struct RuleQueryFlags {
    /// Domain. Default: all.
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// Path of one rule, as in `/rlconfig` and metrics. Default: all.
    #[arg(long, value_name = "PATH")]
    rule: Option<String>,
    #[command(flatten)]
    connection: ConnectionFlags,
}

/// Command about the traffic of the last minutes.
#[derive(Clone, Debug)]
pub enum TrafficCommand {
    /// Show top talkers.
    Top {
        /// Domain. `None`: all.
        domain: Option<String>,
        /// Maximum number of keys of each table.
        limit: u16,
        /// Whether only the instance that answers is included.
        is_instance: bool,
    },
    /// Compare rules with their candidates.
    Candidates {
        /// Domain. `None`: all.
        domain: Option<String>,
        /// Path of the rule. `None`: all.
        rule: Option<String>,
    },
    /// Recommend limits.
    Recommend {
        /// Domain. `None`: all.
        domain: Option<String>,
        /// Path of the rule. `None`: all.
        rule: Option<String>,
    },
    /// Show events.
    Events {
        /// Maximum number of events.
        limit: u16,
    },
}

impl TopFlags {
    pub(in crate::settings) fn resolve(self) -> Result<AdminClientSettings, Problem> {
        let Self { domain, limit, instance: is_instance, connection } = self;
        connection.resolve(AdminCommand::Traffic(TrafficCommand::Top { domain, limit, is_instance }))
    }
}

impl RuleQueryFlags {
    pub(in crate::settings) fn candidates(self) -> Result<AdminClientSettings, Problem> {
        let Self { domain, rule, connection } = self;
        connection.resolve(AdminCommand::Traffic(TrafficCommand::Candidates { domain, rule }))
    }

    pub(in crate::settings) fn recommend(self) -> Result<AdminClientSettings, Problem> {
        let Self { domain, rule, connection } = self;
        connection.resolve(AdminCommand::Traffic(TrafficCommand::Recommend { domain, rule }))
    }
}

impl EventsFlags {
    pub(in crate::settings) fn resolve(self) -> Result<AdminClientSettings, Problem> {
        self.connection.resolve(AdminCommand::Traffic(TrafficCommand::Events { limit: self.limit }))
    }
}
