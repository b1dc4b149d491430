//! Counters in Redis.
//!
//! A request is decided in one step by the script in `lua/decide/`, on the keys of one hash tag; where possible, one
//! `EVALSHA` carries several requests, to a node of a cluster for any of its slots. A charge is never sent twice: only
//! replies that rule out a charge lead to another attempt, which are `NOSCRIPT`, the redirections of a cluster, and errors
//! about keys that a command on several slots did not reach.
//!
//! `Topology` hides the number of servers: `batch` combines requests to one server, `connection` maintains the connection,
//! `servers` lists the servers with what they report (`info`), `targets` has the servers to connect to, `sentinel` finds the
//! current master, and `cluster` has a batcher for each master.

mod auxiliary_scripts;
mod batch;
mod cluster;
mod connect;
mod connection;
mod error;
mod first_decision;
mod info;
pub mod metrics;
pub(crate) mod script;
mod sentinel;
mod servers;
mod settings;
mod store_clock;
mod targets;
mod url;

use std::{convert::Infallible, fmt, future::ready, sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, Either, FutureExt as _};
use tokio::time::Instant;
use tollgate_core::clock::Timestamp;
use tollgate_metrics::Metric;
use tollgate_runtime::outage::SharedOutageLog;
use tollgate_shedding::{SheddingPolicy, SheddingReading, UtilizationSums};

pub use self::auxiliary_scripts::{Reply, add_utilization};
use self::batch::{Batcher, CallTimes, RequestOptions};
pub use self::first_decision::{Undecided, first_decision};
pub use self::script::{CommandKeys, Run, RunOutcome, Script};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::store_clock::StoreClock;
use self::{cluster::Cluster, connection::Connection, error::SendError, url::Address};
pub use self::{settings::RedisSettings, url::RedisUrl};
use crate::local::{LastVerdicts, OutageCache};
use crate::request::{TagRequest, Verdicts};
use crate::store::{CounterStore, LoanStep, PendingDecision, TimeLimits};
use crate::{BackgroundQueue, StoreError, after, key::CellKey, loans::SharedCounter};

/// Metrics of a store in Redis.
pub static METRICS: &[&dyn Metric] = &[
    &metrics::CALLS,
    &metrics::COMMANDS,
    &metrics::UNREACHED,
    &metrics::BATCH_CALLS,
    &batch::QUEUED_CALLS,
    &batch::CALLS_IN_FLIGHT,
    &servers::CONNECTIONS,
    &metrics::CLUSTER_CONNECTIONS,
    &servers::BREAKERS_OPENED,
    &servers::BREAKERS_OPEN,
    &servers::REPORTED,
];

/// Counters in a Redis shared by instances. Each worker opens its own store, with its own connections; clones share
/// them.
#[derive(Clone, Debug)]
pub struct RedisStore {
    shared: Arc<SharedStore>,
    /// Time that a test has set, by which the scripts decide.
    fixed: Option<Timestamp>,
}

struct SharedStore {
    servers: Topology,
    options: RequestOptions,
    outage: SharedOutageLog,
}

impl fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedStore")
    }
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
                tracing::warn!(%error, "Redis unavailable; deciding in degraded mode");
            }
            None if self.outage.recovered() => tracing::info!("Redis recovered"),
            Some(_) | None => {}
        }
    }
}

impl RedisStore {
    /// A store at `settings`, connected in the background by tasks on the current runtime: an absent server is no error
    /// here.
    ///
    /// # Errors
    /// [`StoreError::Refused`] for invalid settings: a malformed URL, an unreadable certificate.
    pub fn open(settings: &RedisSettings) -> Result<Self, StoreError> {
        Self::open_sharing(settings, BackgroundQueue::default(), LastVerdicts::default())
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
        let options =
            settings.request_options(background, OutageCache { last_verdicts, ..OutageCache::default() });
        let servers = settings.open(&options)?;
        let shared = Arc::new(SharedStore {
            servers,
            options,
            outage: SharedOutageLog::new(OUTAGE_LOG_GAP, OUTAGE_SETTLE_TIME),
        });
        Ok(Self { shared, fixed: None })
    }

    /// Waits until the server is connected, or the slots of a cluster are known and one of its masters is connected.
    /// Returns false if every clone of this store is dropped before.
    pub fn connected(&self) -> impl Future<Output = bool> + Send + 'static {
        self.shared.servers.connected()
    }

    /// Decides a request in one step, within the time limit of the settings.
    ///
    /// # Errors
    /// See [`StoreError`]. After [`StoreError::Timeout`] and [`StoreError::Disconnected`] it is unknown whether the
    /// request was charged.
    pub async fn decide(&self, request: &TagRequest) -> Result<Verdicts, StoreError> {
        self.decide_by(request, None).await
    }

    /// Decides a request of this process itself in one step: no `on_store_error` policy applies if it fails, and so the
    /// failure is not logged as an outage.
    ///
    /// # Errors
    /// See [`RedisStore::decide`].
    pub async fn decide_own(&self, request: &TagRequest) -> Result<Verdicts, StoreError> {
        let decision = self.send(request, self.times(Instant::now(), None)).await;
        if decision.is_ok() {
            self.shared.log_outage(None);
        }
        decision
    }

    /// Times of a call at `now`.
    fn times(&self, now: Instant, deadline: Option<Instant>) -> CallTimes {
        let deadline = deadline.unwrap_or_else(|| after(now, self.shared.options.timeout));
        CallTimes { made_at: now, deadline, fixed: self.fixed }
    }

    async fn send(&self, request: &TagRequest, times: CallTimes) -> Result<Verdicts, StoreError> {
        let decision = self.shared.servers.decide(request, times).await;
        decision.map_err(|error| error::into_store_error(error, times.deadline.duration_since(times.made_at)))
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

/// Access for tests: another time, and runs that they compose.
#[cfg(any(test, feature = "fuzzing"))]
impl RedisStore {
    /// This store, whose scripts decide by this time.
    #[must_use]
    pub fn at_time(self, time: Timestamp) -> Self {
        Self { fixed: Some(time), ..self }
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
            let command = shared.options.command(runs.iter().copied(), keys, self.fixed);
            connection.send_script(&command, &script::load(keys)).await
        };
        let reply = tokio::time::timeout(timeout_after, sent).await.unwrap_or(Err(SendError::Timeout));
        let into_store_error = |error| error::into_store_error(error, timeout_after);
        let reply = reply.map_err(into_store_error)?;
        let outcomes = script::read_replies(runs.iter().copied(), reply).ok_or(StoreError::MalformedReply)?;
        Ok(outcomes
            .into_iter()
            .map(|outcome| outcome.map_err(SendError::Failed).map_err(into_store_error))
            .collect())
    }
}

impl CounterStore for RedisStore {
    fn decide_by<'a>(&'a self, request: &'a TagRequest, deadline: Option<Instant>) -> PendingDecision<'a> {
        let now = Instant::now();
        // The cache depends on the current time, not on that set by a test.
        if self.fixed.is_none()
            && let Some(verdicts) = self.shared.servers.decide_from_cache(request, now)
        {
            self.shared.log_outage(None);
            return Either::Left(ready(Ok(verdicts)));
        }
        let sent = async move {
            let decision = self.send(request, self.times(now, deadline)).await;
            self.shared.log_outage(decision.as_ref().err());
            decision
        };
        Either::Right(sent.boxed())
    }

    fn time_limits(&self) -> Option<TimeLimits> {
        let timeout = self.shared.options.timeout;
        Some(TimeLimits { usual: timeout, longest: timeout })
    }

    fn with_loans<'a>(
        &'a self,
        counter: &'a SharedCounter,
        time_limit: Duration,
        step: &'a mut LoanStep<'a>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        auxiliary_scripts::with_loans(self, counter, time_limit, step).boxed()
    }

    fn decide_from_cache(&self, request: &TagRequest) -> Option<Verdicts> {
        self.shared.servers.decide_from_cache(request, Instant::now())
    }

    fn outage_cache(&self) -> Option<&OutageCache> {
        Some(&self.shared.options.outage)
    }

    fn add_utilization<'a>(
        &'a self,
        key: &'a CellKey,
        policy: &'a SheddingPolicy,
        interval: &'a UtilizationSums,
        time_limit: Duration,
    ) -> BoxFuture<'a, Option<SheddingReading>> {
        add_utilization(self, key, policy, interval, time_limit).map(Result::ok).boxed()
    }
}

/// The servers of a store.
enum Topology {
    /// One at a time: a standalone server, or the master that Sentinel names.
    Single(Arc<Batcher>),
    /// The masters of a cluster.
    Cluster(Cluster),
}

impl Topology {
    /// Has the owner of the request's keys decide it. A request whose outcome is unknown is not sent again, nor any
    /// after the deadline.
    async fn decide(&self, request: &TagRequest, times: CallTimes) -> Result<Verdicts, SendError> {
        match self {
            Self::Single(server) => server.decide(request, times).await,
            Self::Cluster(cluster) => cluster.decide(request, times).await,
        }
    }

    /// Decides a request from the cache of this worker, if that suffices.
    fn decide_from_cache(&self, request: &TagRequest, now: Instant) -> Option<Verdicts> {
        match self {
            Self::Single(server) => server.decide_from_cache(request, now),
            Self::Cluster(cluster) => cluster.decide_from_cache(request, now),
        }
    }

    /// The connection to the owner of a slot.
    async fn connection(&self, slot: u16) -> Result<Connection, SendError> {
        match self {
            Self::Single(server) => Ok(server.connection.clone()),
            Self::Cluster(cluster) => cluster.connection(slot).await,
        }
    }

    /// The node of a cluster that owns a slot.
    fn owner(&self, slot: u16) -> Option<Address> {
        match self {
            Self::Single(_) => None,
            Self::Cluster(cluster) => cluster.node_of(slot),
        }
    }

    /// Waits until the servers are connected (true), or no handle is left (false). The future is not a handle.
    fn connected(&self) -> impl Future<Output = bool> + Send + 'static {
        match self {
            Self::Single(server) => Either::Left(server.connection.connected()),
            Self::Cluster(cluster) => Either::Right(cluster.connected()),
        }
    }
}
