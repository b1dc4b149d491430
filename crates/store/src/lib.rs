//! Stores of counters: in this process, or in Redis.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

pub mod request;
pub mod key;
mod background;
pub mod memory;
pub mod metrics;
pub mod redis;

use std::time::Duration;

use futures_util::future::join_all;
use smallvec::SmallVec;
use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};
use tollgate_core::descriptor::Hits;

use self::request::{Requests, TagRequest, Verdicts};
pub use self::{background::BackgroundQueue, memory::MemoryStore, redis::RedisStore};

/// A store of counters, as used by one worker. Clones are handles on the same counters.
#[derive(Clone, Debug)]
pub enum Store {
    /// In this process; its limits apply to this instance alone.
    Memory(MemoryStore),
    /// In a Redis that instances share.
    Redis(RedisStore),
}

/// Pauses between attempts to refund, before jitter: they outlast a short outage. Jitter spreads them, so that the
/// refunds held up by an outage do not arrive at once.
const REFUND_RETRY_PAUSES: [Duration; 7] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// Result of each request, in the order of the requests.
pub type Decisions = SmallVec<[Result<Verdicts, StoreError>; 1]>;

/// Reason why a store did not decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No response in time; whether anything was charged is unknown.
    #[error("no response within {0:?}")]
    Timeout(Duration),
    /// Not sent: the deadline passed in the queue. Nothing was charged.
    #[error("{}", queue_timeout(.0))]
    QueueTimeout(Duration),
    /// Not sent: the server owes responses, so the circuit breaker is open. Nothing was charged.
    #[error("not sent: circuit breaker open, the server does not respond")]
    BreakerOpen,
    /// Not sent: the queue of the server is full, or the response would miss its deadline. Nothing was charged.
    #[error("not sent: too many requests queued")]
    Overloaded,
    /// No connection. Nothing was charged.
    #[error("not connected: {0}")]
    Unreachable(String),
    /// The connection broke with the request in flight; whether anything was charged is unknown.
    #[error("connection lost: {0}")]
    Disconnected(String),
    /// The counters were migrating between servers until the deadline. Nothing was charged.
    #[error("counters are migrating to another server: {0}")]
    SlotMigrating(String),
    /// The server replied with an error that rules out a charge: it currently accepts no commands, or no writes.
    #[error("store declined: {0}")]
    Declined(String),
    /// The server replied with an error; whether anything was charged is unknown.
    #[error("store error: {0}")]
    Refused(String),
    /// The reply is not of the agreed form; whether anything was charged is unknown.
    #[error("malformed reply from the store")]
    MalformedReply,
}

fn queue_timeout(time: &Duration) -> String {
    match time {
        &Duration::ZERO => "not sent: the deadline had passed on arrival".into(),
        time => format!("not sent: timed out in the queue after {time:?}"),
    }
}

impl StoreError {
    /// Whether the request certainly had no effect: nothing was charged, nor refunded.
    pub const fn charged_nothing(&self) -> bool {
        match self {
            Self::QueueTimeout(_)
            | Self::BreakerOpen
            | Self::Overloaded
            | Self::Unreachable(_)
            | Self::SlotMigrating(_)
            | Self::Declined(_) => true,
            Self::Timeout(_) | Self::Disconnected(_) | Self::Refused(_) | Self::MalformedReply => false,
        }
    }

    /// Labels of all errors in metrics.
    pub const LABELS: [&'static str; 10] = [
        "timeout",
        "queue_timeout",
        "breaker_open",
        "overloaded",
        "unreachable",
        "disconnected",
        "slot_migrating",
        "declined",
        "refused",
        "malformed_reply",
    ];

    /// The label of the error in metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Timeout(_) => "timeout",
            Self::QueueTimeout(_) => "queue_timeout",
            Self::BreakerOpen => "breaker_open",
            Self::Overloaded => "overloaded",
            Self::Unreachable(_) => "unreachable",
            Self::Disconnected(_) => "disconnected",
            Self::SlotMigrating(_) => "slot_migrating",
            Self::Declined(_) => "declined",
            Self::Refused(_) => "refused",
            Self::MalformedReply => "malformed_reply",
        }
    }
}

impl Store {
    /// Deadline of a decision that begins now, given the timeout of its caller, if known. `None` where decisions take
    /// no time.
    pub fn deadline(&self, caller_timeout: Option<Duration>) -> Option<Instant> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(store) => Some(store.deadline(caller_timeout)),
        }
    }

    /// Decides every request until `deadline`, each in one atomic step, all of them in flight together.
    pub async fn decide(&self, requests: &[TagRequest], deadline: Option<Instant>) -> Decisions {
        match self {
            Self::Memory(store) => requests.iter().map(|request| Ok(store.decide(request))).collect(),
            Self::Redis(store) => {
                let deadline = deadline.unwrap_or_else(|| store.deadline(None));
                match requests {
                    [request] => SmallVec::from_iter([store.decide_by(request, deadline).await]),
                    requests => join_all(requests.iter().map(|request| store.decide_by(request, deadline)))
                        .await
                        .into(),
                }
            }
        }
    }

    /// Decides every request from this worker's cache, without a call to the server; [`StoreError::Overloaded`] for
    /// those that the cache does not cover.
    pub fn decide_from_cache(&self, requests: &[TagRequest]) -> Decisions {
        match self {
            Self::Memory(store) => requests.iter().map(|request| Ok(store.decide(request))).collect(),
            Self::Redis(store) => requests
                .iter()
                .map(|request| store.decide_from_cache(request).ok_or(StoreError::Overloaded))
                .collect(),
        }
    }

    /// Executes requests whose outcome has no waiter: refunds. Where a store takes time, a task of its own does so.
    /// Failed requests are retried for some seconds, unless that could refund twice.
    pub fn refund_in_background(&self, requests: Requests) {
        if requests.is_empty() {
            return;
        }
        match (self, Handle::try_current()) {
            (Self::Memory(store), _) => {
                for request in &requests {
                    store.decide(request);
                    metrics::refund(true);
                }
            }
            (Self::Redis(store), Ok(runtime)) => match store.background().acquire(requests.len()) {
                Some(slot) => {
                    let store = self.clone();
                    runtime.spawn(async move {
                        refund(&store, requests).await;
                        drop(slot);
                    });
                }
                None => requests.iter().for_each(|_| metrics::refund(false)),
            },
            // The process is shutting down.
            (Self::Redis(_), Err(_)) => requests.iter().for_each(|_| metrics::refund(false)),
        }
    }
}

/// Executes refunds, and retries those that failed, with growing pauses.
async fn refund(store: &Store, mut requests: Requests) {
    for pause in REFUND_RETRY_PAUSES.into_iter().map(Some).chain([None]) {
        let decisions = store.decide(&requests, None).await;
        let mut failed = Requests::new();
        for (request, decision) in requests.into_iter().zip(decisions) {
            match decision {
                Ok(_) => metrics::refund(true),
                Err(error) if pause.is_some() && is_retryable(&request, &error) => failed.push(request),
                Err(_) => metrics::refund(false),
            }
        }
        requests = failed;
        match pause {
            Some(pause) if !requests.is_empty() => sleep(tollgate_runtime::backoff::spread(pause)).await,
            Some(_) | None => return,
        }
    }
}

/// Whether a failed request may be sent again: it had no effect, or is idempotent.
fn is_retryable(request: &TagRequest, error: &StoreError) -> bool {
    error.charged_nothing() || request.checks().all(|check| matches!(check.hits, Hits::Release(_)))
}
