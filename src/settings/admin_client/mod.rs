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

pub(super) use self::{
    connection::FLAGS,
    counters::{CountersFlags, UsageFlags},
    lists::ListsFlags,
    overrides::OverrideFlags,
    regions::RegionsFlags,
    rules::RulesFlags,
    switches::SwitchFlags,
    traffic::{EventsFlags, RuleQueryFlags, TopFlags},
};
pub use self::{
    connection::{AdminUrl, ClientIdentity, ConnectionSettings, OutputFormat},
    counters::{CounterCommand, CounterSelector},
    lists::ListCommand,
    overrides::{LimitArgument, OverrideCommand},
    regions::RegionsCommand,
    rules::{BaseVersion, DiffSource, Rollback, RulesCommand, VersionSelector},
    switches::SwitchCommand,
    traffic::TrafficCommand,
};

/// Settings of a call to the admin API.
#[derive(Clone, Debug)]
pub struct AdminClientSettings {
    /// Connection to the admin port.
    pub connection: ConnectionSettings,
    /// OutputFormat format.
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
    /// Allow and deny lists.
    List(ListCommand),
    /// Overrides of rules.
    Override(OverrideCommand),
    /// Switches of rules.
    Switch(SwitchCommand),
    /// Regions.
    Regions(RegionsCommand),
    /// Traffic of the last minutes.
    Traffic(TrafficCommand),
}
