//! Arguments of the commands that call the admin API: `rules`, `counters`, `ban` and `switch`.

mod connection;
mod counters;
mod lists;
mod rules;
mod switches;
#[cfg(test)]
mod tests;

pub(super) use self::{
    connection::FLAGS, counters::CountersFlags, lists::BanFlags, rules::RulesFlags, switches::SwitchFlags,
};
pub use self::{
    connection::{AdminUrl, ConnectionSettings, Identity, Output},
    counters::{CounterTask, CounterWords},
    lists::ListTask,
    rules::{BasedOn, Compared, Rollback, RulesTask, Which},
    switches::SwitchTask,
};

/// Settings of a call to the admin API.
#[derive(Clone, Debug)]
pub struct OperatorSettings {
    /// Connection to the admin port.
    pub connection: ConnectionSettings,
    /// Output format.
    pub output: Output,
    /// Task.
    pub task: Task,
}

/// Task of a call to the admin API.
#[derive(Clone, Debug)]
pub enum Task {
    /// Rule versions.
    Rules(RulesTask),
    /// A counter.
    Counter(CounterTask),
    /// Allow and deny lists.
    List(ListTask),
    /// Switches of rules.
    Switch(SwitchTask),
}
