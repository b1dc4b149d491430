//! Access for tests: a store at another time, and runs that a test composes.

use tokio::time::timeout;

use super::{CommandKeys, RedisStore, Run, RunOutcome, ScriptClock, error, error::SendError, script};
use crate::StoreError;

impl RedisStore {
    /// This store with another clock.
    #[must_use]
    pub fn with_clock(self, clock: ScriptClock) -> Self {
        Self { clock, ..self }
    }

    /// Assumes that the servers' clock is ahead of this instance's.
    pub fn assume_ahead(&self, micros: i64) {
        self.shared.options.store_clock.assume_ahead(micros);
    }

    /// Decides several runs in one command, each in one step, in order; in a cluster, all must be of one slot. If there
    /// are several, each has an outcome or an error of its own. Neither cached nor retried.
    ///
    /// With [`CommandKeys::AnySlotOfNode`], all must be of slots of the node that serves the first.
    ///
    /// # Errors
    /// As [`RedisStore::decide`], for all of them.
    pub async fn decide_runs(
        &self,
        runs: &[Run<'_>],
        keys: CommandKeys,
    ) -> Result<Vec<Result<RunOutcome, StoreError>>, StoreError> {
        let shared = &*self.shared;
        let slot = runs.first().map_or(0, |run| run.request.slot());
        let timeout_after = shared.options.timeout;
        let sent = async {
            let connection = shared.servers.connection(slot).await?;
            let command = shared.options.command(runs.iter().copied(), self.clock, keys);
            connection.send_script(&command, &script::load(keys)).await
        };
        let reply = timeout(timeout_after, sent).await.unwrap_or(Err(SendError::Timeout));
        let into_store_error = |error| error::into_store_error(error, timeout_after);
        let reply = reply.map_err(into_store_error)?;
        let outcomes = script::read_replies(runs.iter().copied(), reply).ok_or(StoreError::MalformedReply)?;
        Ok(outcomes
            .into_iter()
            .map(|outcome| outcome.map_err(SendError::Failed).map_err(into_store_error))
            .collect())
    }
}
