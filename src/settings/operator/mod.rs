//! What an operator asks of a running tollgate.

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

/// What an operator asks, and of whom.
#[derive(Clone, Debug)]
pub struct OperatorSettings {
    /// Of whom.
    pub connection: ConnectionSettings,
    /// How the answer is written.
    pub output: Output,
    /// What.
    pub task: Task,
}

/// What an operator asks.
#[derive(Clone, Debug)]
pub enum Task {
    /// About the versions of the rules.
    Rules(RulesTask),
    /// About a counter.
    Counter(CounterTask),
    /// About the lists that allow and deny.
    List(ListTask),
    /// About the switches of rules.
    Switch(SwitchTask),
}
