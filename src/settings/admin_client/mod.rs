//! Arguments of the commands that call the admin API: `rules`, `counters`, `usage`, `lists`, `switch`, `override`,
//! `regions`, `top`, `candidates`, `recommend` and `events`.

mod connection;
mod counters;
mod lists;
mod overrides;
mod regions;
mod rules;
mod switches;
mod traffic;
#[cfg(test)]
mod tests;

use clap::{Args, Subcommand};

use self::connection::ConnectionFlags;
pub(super) use self::connection::FLAGS;
pub use self::{
    connection::{AdminUrl, ClientIdentity, ConnectionSettings, OutputFormat},
    counters::{BanModeArgument, CounterCommand, CounterSelector},
    lists::ListCommand,
    overrides::{LimitArgument, OverrideCommand},
    regions::RegionsCommand,
    rules::{BaseVersion, DiffSource, RulesCommand, VersionSelector},
    switches::{RuleSelector, SwitchCommand},
    traffic::{EventsQuery, RuleQuery, TopQuery},
};
use super::{Command, error::Problem};

/// Settings of a call to the admin API.
#[derive(Clone, Debug)]
pub struct AdminClientSettings {
    /// Connection to the admin port.
    pub connection: ConnectionSettings,
    /// Format of the output.
    pub output: OutputFormat,
    /// Command.
    pub command: AdminCommand,
}

/// Command of a call to the admin API.
#[derive(Clone, Debug)]
pub enum AdminCommand {
    /// Rule versions.
    Rules(RulesCommand),
    /// A counter.
    Counter(CounterCommand),
    /// Use of the limits of a descriptor.
    Usage(CounterSelector),
    /// Allow and deny lists.
    List(ListCommand),
    /// Overrides of rules.
    Override(OverrideCommand),
    /// Switches of rules.
    Switch(SwitchCommand),
    /// Regions.
    Regions(RegionsCommand),
    /// Top talkers.
    Top(TopQuery),
    /// Comparisons of rules with their candidates.
    Candidates(RuleQuery),
    /// Recommended limits.
    Recommend(RuleQuery),
    /// Events.
    Events(EventsQuery),
}

/// Arguments of a command with subcommands.
#[derive(Args, Debug)]
pub(super) struct SubcommandFlags<C: Subcommand> {
    #[command(subcommand)]
    command: C,
    #[command(flatten)]
    connection: ConnectionFlags,
}

/// Arguments of a command without subcommands.
#[derive(Args, Debug)]
pub(super) struct QueryFlags<Q: Args> {
    #[command(flatten)]
    query: Q,
    #[command(flatten)]
    connection: ConnectionFlags,
}

impl<C: Subcommand> SubcommandFlags<C> {
    pub(super) fn resolve(self, command: impl FnOnce(C) -> AdminCommand) -> Result<Command, Problem> {
        self.connection.resolve(command(self.command))
    }
}

impl<Q: Args> QueryFlags<Q> {
    pub(super) fn resolve(self, command: impl FnOnce(Q) -> AdminCommand) -> Result<Command, Problem> {
        self.connection.resolve(command(self.query))
    }
}
