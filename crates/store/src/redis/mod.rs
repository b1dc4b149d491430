//! Counters in Redis.
//!
//! A request is decided in one step by the script in `lua/decide/`, on the keys of one hash tag; where possible, one
//! `EVALSHA` carries several requests, to a node of a cluster for any of its slots. A charge is never sent twice: only
//! replies that rule out a charge lead to another attempt, which are `NOSCRIPT`, the redirections of a cluster, and errors
//! about keys that a command on several slots did not reach.
//!
//! `topology` hides the number of servers: `batch` combines requests to one server, `local` caches what need not be
//! sent, `connection` and `reconnect` maintain the connection, `servers` lists the servers with what they report,
//! `target` resolves its server, `sentinel` finds the current master, and `cluster` has a batcher for each master.

mod connect;
mod address;
mod batch;
mod cluster;
mod admin_script;
mod connection;
mod reconnect;
mod subscriber;
mod cached_bans;
mod last_verdicts;
mod live;
mod loans;
mod local;
pub mod metrics;
mod error;
mod first_decision;
mod script;
mod sentinel;
mod servers;
mod url;
mod settings;
mod store_clock;
mod target;
mod topology;
mod utilization;

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout};
use tollgate_core::{
    RecordId,
    algorithm::{LastVerdict, Verdict},
    clock::Timestamp,
};
use tollgate_runtime::outage::SharedOutageLog;

pub(crate) use self::loans::with_loans;
#[cfg(any(test, feature = "fuzzing"))]
pub use self::script::fuzzing::replies;
pub use self::{
    admin_script::{Reply, Script},
    first_decision::{Undecided, first_decision},
    last_verdicts::LastVerdicts,
    local::{held_hits, recheck_bans},
    script::{CommandKeys, Run, RunOutcome},
    settings::RedisSettings,
    url::{Cluster, RedisUrl, Sentinel},
    utilization::add_utilization,
};
use self::{
    batch::{RequestOptions, Submission},
    connection::SendError,
    topology::Topology,
};
use super::{
    BackgroundQueue, StoreError,
    key::CellKey,
    request::{Cell, Check, TagRequest, Verdicts},
};

/// Counters in a Redis shared by instances. Each worker opens its own store, with its own connections; clones share
/// them.
#[derive(Clone, Debug)]
pub struct RedisStore {
    shared: Arc<SharedStore>,
    clock: ScriptClock,
}

#[derive(Debug)]
struct SharedStore {
    servers: Topology,
    options: RequestOptions,
    outage: SharedOutageLog,
}

/// Shortest time between two logged outages: a store that fails intermittently is logged intermittently.
const OUTAGE_LOG_GAP: Duration = Duration::from_secs(10);

/// Time without a failure after which an outage counts as over: while one shard of a cluster is lost, the other shards
/// succeed between its failures.
const OUTAGE_SETTLE_TIME: Duration = Duration::from_secs(1);

impl SharedStore {
    /// Logs the start and the end of an outage.
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

/// Clock by which the script decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScriptClock {
    /// The clock of the server, so that the clocks of instances don't matter.
    #[default]
    Server,
    /// A time set by a test.
    Fixed(Timestamp),
}

impl RedisStore {
    /// A store at `settings`, connected in the background by tasks on the current runtime: an absent server is no error
    /// here.
    ///
    /// # Errors
    /// [`StoreError::Refused`] for invalid settings: a malformed URL, an unreadable certificate.
    pub fn open(settings: &RedisSettings) -> Result<Self, StoreError> {
        Self::open_with(settings, BackgroundQueue::default())
    }

    /// A store at `settings` with a shared queue for its background requests.
    ///
    /// # Errors
    /// See [`RedisStore::open`].
    pub fn open_with(settings: &RedisSettings, background: BackgroundQueue) -> Result<Self, StoreError> {
        Self::open_sharing(settings, background, LastVerdicts::default())
    }

    /// A store at `settings` that shares its queue for background requests, and the last verdicts of counters, with the
    /// stores of other workers.
    ///
    /// # Errors
    /// See [`RedisStore::open`].
    pub fn open_sharing(
        settings: &RedisSettings,
        background: BackgroundQueue,
        last_verdicts: LastVerdicts,
    ) -> Result<Self, StoreError> {
        let options = settings.request_options(background, last_verdicts);
        let servers = settings.open(&options)?;
        let shared = Arc::new(SharedStore {
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

    /// Assumes that the servers' clock is ahead of this instance's, for tests.
    pub fn assume_ahead(&self, micros: i64) {
        self.shared.options.store_clock.assume_ahead(micros);
    }

    /// Waits until the server is connected, or the slots of a cluster are known and one of its masters is connected.
    /// Returns false if every clone of this store is dropped before.
    pub fn connected(&self) -> impl Future<Output = bool> + Send + 'static {
        self.shared.servers.connected()
    }

    pub(super) fn background(&self) -> &BackgroundQueue {
        &self.shared.options.background
    }

    /// Decides a request in one step.
    ///
    /// # Errors
    /// See [`StoreError`]. After [`StoreError::Timeout`] and [`StoreError::Disconnected`] it is unknown whether the
    /// request was charged.
    pub async fn decide(&self, request: &TagRequest) -> Result<Verdicts, StoreError> {
        self.decide_by(request, self.deadline(None)).await
    }

    /// Decides a request in one step, until `deadline`.
    ///
    /// # Errors
    /// See [`RedisStore::decide`].
    pub async fn decide_by(&self, request: &TagRequest, deadline: Instant) -> Result<Verdicts, StoreError> {
        let verdicts = self.attempt(request, deadline).await;
        self.shared.log_outage(verdicts.as_ref().err());
        verdicts
    }

    /// Decides a request of this process itself in one step: no `on_store_error` policy applies if it fails, and so the
    /// failure is not logged as an outage.
    ///
    /// # Errors
    /// See [`RedisStore::decide`].
    pub async fn decide_own(&self, request: &TagRequest) -> Result<Verdicts, StoreError> {
        let verdicts = self.attempt(request, self.deadline(None)).await;
        if verdicts.is_ok() {
            self.shared.log_outage(None);
        }
        verdicts
    }

    async fn attempt(&self, request: &TagRequest, deadline: Instant) -> Result<Verdicts, StoreError> {
        let submission = Submission { request, clock: self.clock, made_at: Instant::now(), deadline };
        self.shared.servers.decide(&submission).await.map_err(|error| {
            let waited = deadline.saturating_duration_since(submission.made_at);
            error::into_store_error(error, waited)
        })
    }

    /// The denial of a check whose counter has a cached ban, while the server does not decide.
    pub(super) fn cached_ban(&self, cell: &Cell, check: &Check) -> Option<Verdict> {
        self.shared.options.cached_bans.verdict(cell, check, Instant::now())
    }

    /// Decides a request from the cache of this worker, if that suffices.
    pub(super) fn decide_from_cache(&self, request: &TagRequest) -> Option<Verdicts> {
        self.shared.servers.decide_from_cache(request)
    }

    /// Takes the last verdict of a counter that was in use, and the time at which a counter was decided last.
    pub(super) fn take_last_verdict(
        &self,
        cell: &CellKey,
        record: RecordId,
    ) -> Option<(LastVerdict, Timestamp)> {
        self.shared.options.last_verdicts.take(cell, record)
    }

    /// Deadline of a decision that begins now, given the timeout of its caller, if known.
    pub(super) fn deadline(&self, caller_timeout: Option<Duration>) -> Instant {
        let now = Instant::now();
        let timeout = self.shared.options.timeout;
        let within = caller_timeout.map_or(timeout, |caller_timeout| caller_timeout.min(timeout));
        now.checked_add(within).unwrap_or(now)
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
        let first = runs.first().and_then(|run| run.request.cells.first());
        let slot = first.map_or(0, |cell| cell.key.slot());
        let timeout_after = shared.options.timeout;
        let sent = async {
            let connection = shared.servers.connection(slot).await?;
            let command = shared.options.command(runs.iter().copied(), self.clock, keys);
            match connection.send(&command).await {
                Err(error) if error.is_unknown_script() => {
                    connection.send(&script::load(keys)).await?;
                    connection.send(&command).await
                }
                reply => reply,
            }
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
