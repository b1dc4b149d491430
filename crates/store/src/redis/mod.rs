//! Counters in Redis.
//!
//! A call is decided in one step by the script in `lua/decide/`, on the keys of one hash tag; an `EVALSHA` has several calls
//! where it can. A charge is never sent twice: only answers that say that nothing was charged lead to another attempt.
//! Those are `NOSCRIPT`, and the redirections of a cluster.
//!
//! `topology` hides how many servers there are: `batcher` gets calls to one of them together, `local` knows what need
//! not be asked, `connection` keeps up the connection, `target` says where it leads, `sentinel` finds the master that
//! `sentinels` name, and `cluster` has a batcher for each master.

mod connect;
mod address;
mod batch;
mod cluster;
mod admin_script;
mod connection;
mod reconnect;
mod subscriber;
mod local;
pub mod metrics;
mod error;
mod script;
mod sentinel;
mod url;
mod settings;
mod target;
mod topology;

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout};
use tollgate_runtime::outage::SharedOutageLog;

#[cfg(any(test, feature = "fuzzing"))]
pub use self::script::fuzzing::replies;
pub use self::{
    admin_script::{Reply, Script},
    script::{Run, RunOutcome},
    settings::RedisSettings,
    url::{Cluster, RedisUrl, Sentinel},
};
use self::{
    batch::{RequestOptions, Submission},
    connection::SendError,
    topology::Topology,
};
use super::{
    BackgroundQueue, StoreError,
    request::{TagRequest, Verdicts},
};
use tollgate_core::clock::Timestamp;

/// Counters in a Redis that instances share; each worker opens its own, with its own connections. Clones share them.
#[derive(Clone, Debug)]
pub struct RedisStore {
    shared: Arc<Shared>,
    clock: ScriptClock,
}

#[derive(Debug)]
struct Shared {
    servers: Topology,
    options: RequestOptions,
    outage: SharedOutageLog,
}

/// Shortest time between two outages that are logged: a store that fails now and then is logged now and then.
const OUTAGE_LOG_GAP: Duration = Duration::from_secs(10);

/// Time without a failure after which an outage counts as over: while a shard of a cluster is lost, the others decide
/// between its failures.
const OUTAGE_SETTLE_TIME: Duration = Duration::from_secs(1);

impl Shared {
    /// Logs when Redis begins to fail, and when it has recovered.
    fn log_outage(&self, error: Option<&StoreError>) {
        match error {
            Some(error) if self.outage.failed() => {
                tracing::warn!(%error, "Redis unavailable; applying on_store_error policies");
            }
            None if self.outage.recovered() => tracing::info!("Redis recovered"),
            Some(_) | None => {}
        }
    }
}

/// Which clock the script decides by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScriptClock {
    /// The server's own, so that the clocks of instances don't matter.
    #[default]
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
        Self::open_with(settings, BackgroundQueue::default())
    }

    /// The same, with turns that others take too for calls that nobody waits for.
    ///
    /// # Errors
    /// Those of [`RedisStore::open`].
    pub fn open_with(settings: &RedisSettings, background: BackgroundQueue) -> Result<Self, StoreError> {
        let options = settings.request_options(background);
        let servers = settings.open(&options)?;
        let shared = Arc::new(Shared {
            servers,
            options,
            outage: SharedOutageLog::new(OUTAGE_LOG_GAP, OUTAGE_SETTLE_TIME),
        });
        Ok(Self { shared, clock: ScriptClock::Server })
    }

    /// This store with another clock, for tests.
    #[must_use]
    pub fn with_clock(self, clock: ScriptClock) -> Self {
        Self { clock, ..self }
    }

    /// Waits until the server was reached, or a cluster's slots are known and one of its masters was reached; says no
    /// when every clone of this store is gone before that.
    pub fn connected(&self) -> impl Future<Output = bool> + Send + 'static {
        self.shared.servers.connected()
    }

    pub(super) fn background(&self) -> &BackgroundQueue {
        &self.shared.options.background
    }

    /// Decides a call in one step.
    ///
    /// # Errors
    /// See [`StoreError`]. After [`StoreError::Timeout`] and [`StoreError::Disconnected`] it is unknown whether
    /// the call was charged.
    pub async fn decide(&self, request: &TagRequest) -> Result<Verdicts, StoreError> {
        self.decide_by(request, self.deadline(None)).await
    }

    /// The same for a caller that waits until `deadline`.
    ///
    /// # Errors
    /// Those of [`RedisStore::decide`].
    pub async fn decide_by(&self, request: &TagRequest, deadline: Instant) -> Result<Verdicts, StoreError> {
        let shared = &*self.shared;
        let submission = Submission { request, clock: self.clock, made_at: Instant::now(), deadline };
        let verdicts = shared.servers.decide(submission).await.map_err(|error| {
            let waited = deadline.saturating_duration_since(submission.made_at);
            error::into_store_error(error, waited)
        });
        shared.log_outage(verdicts.as_ref().err());
        verdicts
    }

    /// What a call comes to as far as that is known here.
    pub(super) fn decide_from_cache(&self, request: &TagRequest) -> Option<Verdicts> {
        self.shared.servers.decide_from_cache(request)
    }

    /// Until when a decision that begins now may take, for a caller that waits so long if that is known.
    pub(super) fn deadline(&self, caller_timeout: Option<Duration>) -> Instant {
        let now = Instant::now();
        let timeout = self.shared.options.timeout;
        let within = caller_timeout.map_or(timeout, |caller_timeout| caller_timeout.min(timeout));
        now.checked_add(within).unwrap_or(now)
    }

    /// Decides several runs in one command, each in one step, in their order; in a cluster all of one slot. Each has an
    /// outcome or an error of its own, where it is not alone. Nothing is known of before, nor sent again.
    ///
    /// # Errors
    /// As [`RedisStore::decide`], for all of them.
    pub async fn decide_runs(
        &self,
        runs: &[Run<'_>],
    ) -> Result<Vec<Result<RunOutcome, StoreError>>, StoreError> {
        let shared = &*self.shared;
        let first = runs.first().and_then(|run| run.request.cells.first());
        let slot = first.map_or(0, |cell| cell.key.slot());
        let timeout_after = shared.options.timeout;
        let sent = async {
            let connection = shared.servers.connection(slot).await?;
            connection.send(&shared.options.command(runs.iter().copied(), self.clock)).await
        };
        let answer = timeout(timeout_after, sent).await.unwrap_or(Err(SendError::Timeout));
        let into_store_error = |error| error::into_store_error(error, timeout_after);
        let reply = answer.map_err(into_store_error)?;
        let outcomes = script::read_replies(runs.iter().copied(), reply).ok_or(StoreError::MalformedReply)?;
        Ok(outcomes
            .into_iter()
            .map(|outcome| outcome.map_err(SendError::Failed).map_err(into_store_error))
            .collect())
    }

    /// Calls `notify` for each message of a channel, and after each interruption, in which messages may have been
    /// missed. Never ends.
    ///
    /// # Errors
    /// [`StoreError::Refused`] for invalid settings.
    pub async fn subscribe(
        &self,
        settings: &RedisSettings,
        channel: &[u8],
        notify: impl Fn(),
    ) -> Result<Infallible, StoreError> {
        let mut subscription = settings.subscription()?;
        Ok(subscription.run(&self.shared.servers, channel, notify).await)
    }
}
