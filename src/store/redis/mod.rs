//! Counters in Redis.
//!
//! A call is one `EVALSHA` of the script in `lua/` on the keys of one hash tag. A charge is never sent twice: only
//! answers that say that nothing was charged lead to another attempt. Those are `NOSCRIPT`, and the redirections of
//! a cluster.
//!
//! `topology` hides how many servers there are: `connection` keeps up the connection to one of them, `target`
//! says which, `sentinel` finds the master that `sentinels` name, and `cluster` has a connection for each master.

mod access;
mod address;
mod chance;
mod cluster;
mod condition;
mod connection;
mod keeper;
mod script;
mod sentinel;
mod sentinels;
mod servers;
mod settings;
mod target;
mod topology;

use std::{sync::Arc, time::Duration};

use ::redis::{ErrorKind, ServerErrorKind, Value};
use tokio::time::Instant;

use self::{condition::Condition, connection::SendError, topology::Topology};
pub use self::{
    script::{Outcome, Run},
    servers::{Cluster, Sentinel, Servers},
    settings::RedisSettings,
};
use super::{
    Later, StoreError,
    call::{Call, Verdicts},
};
use crate::clock::Timestamp;

/// Counters in a Redis that instances share; each worker opens its own, with its own connections.
#[derive(Clone, Debug)]
pub struct RedisStore {
    servers: Topology,
    timeout: Duration,
    key_prefix: Box<[u8]>,
    clock: ScriptClock,
    condition: Arc<Condition>,
    later: Later,
}

/// Which clock the script decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptClock {
    /// The server's own, so that the clocks of instances don't matter.
    Server,
    /// A time that a test sets.
    Fixed(Timestamp),
}

impl RedisStore {
    /// A store at `settings`, connected in the background by tasks on the current runtime: that the server is
    /// absent is no error here.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the settings make no sense: a malformed URL, an unreadable certificate.
    pub fn open(settings: &RedisSettings) -> Result<Self, StoreError> {
        Ok(Self {
            servers: settings.open()?,
            timeout: settings.timeout,
            key_prefix: settings.key_prefix.as_bytes().into(),
            clock: ScriptClock::Server,
            condition: Arc::default(),
            later: Later::default(),
        })
    }

    /// This store with another clock, for tests.
    #[must_use]
    pub fn with_clock(self, clock: ScriptClock) -> Self {
        Self { clock, ..self }
    }

    /// Waits until the server was reached, or a cluster's slots are known and one of its masters was reached; says no
    /// when every clone of this store is gone before that.
    pub fn connected(&self) -> impl Future<Output = bool> + Send + 'static {
        self.servers.connected()
    }

    /// This store with turns that others take too, for calls that nobody waits for.
    #[must_use]
    pub fn with_later(self, later: Later) -> Self {
        Self { later, ..self }
    }

    pub(super) const fn later(&self) -> &Later {
        &self.later
    }

    /// Decides a call in one step.
    ///
    /// # Errors
    /// See [`StoreError`]. After [`StoreError::Timeout`] and [`StoreError::Disconnected`] it is unknown whether
    /// the call was charged.
    pub async fn decide(&self, call: &Call) -> Result<Verdicts, StoreError> {
        let mut outcomes = self.decide_runs(&[Run::once(call)]).await?;
        let outcome = outcomes.pop().ok_or(StoreError::Garbled)??;
        outcome.verdicts.into_iter().next().ok_or(StoreError::Garbled)
    }

    /// Decides several runs in one command, each in one step, in their order; in a cluster all of one slot. Each has an
    /// outcome or an error of its own, where it is not alone.
    ///
    /// # Errors
    /// As [`RedisStore::decide`], for all of them.
    pub async fn decide_runs(
        &self,
        runs: &[Run<'_>],
    ) -> Result<Vec<Result<Outcome, StoreError>>, StoreError> {
        let answer = self.evaluate(runs).await.map_err(|error| self.told(error));
        let outcomes = answer.and_then(|reply| {
            let outcomes = script::read_replies(runs.iter().copied(), reply).ok_or(StoreError::Garbled)?;
            let told = |error| self.told(SendError::Failed(error));
            Ok(outcomes.into_iter().map(|outcome| outcome.map_err(told)).collect())
        });
        self.condition.note(outcomes.as_ref().err());
        outcomes
    }

    async fn evaluate(&self, runs: &[Run<'_>]) -> Result<Value, SendError> {
        let now = Instant::now();
        let deadline = now.checked_add(self.timeout).unwrap_or(now);
        let command = script::command(&self.key_prefix, runs.iter().copied(), self.clock);
        let first = || runs.first()?.call.cells.first();
        let slot = || first().map_or(0, |cell| cell.key.slot());
        self.servers.evaluate(slot, &command, deadline).await
    }

    fn told(&self, error: SendError) -> StoreError {
        match error {
            SendError::NotConnected(reason) => StoreError::Unreachable(reason),
            SendError::Late => StoreError::Timeout(self.timeout),
            SendError::Moving(error) => StoreError::Moving(error.to_string()),
            SendError::Failed(error) => match error.kind() {
                ErrorKind::Server(_) | ErrorKind::Extension => StoreError::Refused(error.to_string()),
                // Whatever the client made of the answer, the server may have obeyed.
                _ => StoreError::Disconnected(error.to_string()),
            },
        }
    }
}

impl SendError {
    /// Whether the server had to be told the script first, and so charged nothing.
    fn is_unknown_script(&self) -> bool {
        let unknown = ErrorKind::Server(ServerErrorKind::NoScript);
        matches!(self, Self::Failed(error) if error.kind() == unknown)
    }
}
