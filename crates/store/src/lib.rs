//! Where counters live, and what is asked of them.

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

use self::request::{Requests, TagRequest, Verdicts};
pub use self::{background::BackgroundQueue, memory::MemoryStore, redis::RedisStore};
use tollgate_core::descriptor::Hits;

/// A store, as one worker uses it. A clone is a handle on the same counters.
#[derive(Clone, Debug)]
pub enum Store {
    /// In this process; its limits hold for this instance alone.
    Memory(MemoryStore),
    /// In a Redis that instances share.
    Redis(RedisStore),
}

/// The pauses between attempts to give something back, about: longer than an outage that is soon over. Chance spreads
/// them, so that not all that an outage held up comes back at once.
const REFUND_RETRY_PAUSES: [Duration; 7] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// What each call of a request came to, in the calls' order.
pub type Decisions = SmallVec<[Result<Verdicts, StoreError>; 1]>;

/// Why a store did not decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No answer in time; whether anything was charged is unknown.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// Others had their turn for so long that this was not even asked, so nothing was charged.
    #[error("no turn {}", within(.0))]
    QueueTimeout(Duration),
    /// The server owes answers, so it was not asked, and nothing was charged.
    #[error("not asked: the server does not answer")]
    BreakerOpen,
    /// Too many calls wait for the server, so it was not asked, and nothing was charged.
    #[error("not asked: too many calls wait")]
    Overloaded,
    /// There is no connection, so nothing was charged.
    #[error("not connected: {0}")]
    Unreachable(String),
    /// The connection broke while the answer was awaited; whether anything was charged is unknown.
    #[error("the connection broke: {0}")]
    Disconnected(String),
    /// Until time was over, the counters were on their way from one server to another, so nothing was charged.
    #[error("the counters are on their way to another server: {0}")]
    SlotMigrating(String),
    /// The store answered with an error that says that nothing was charged: it takes no calls, or no writes, now.
    #[error("the store declined: {0}")]
    Declined(String),
    /// The store answered with an error; whether anything was charged is unknown.
    #[error("the store refused: {0}")]
    Refused(String),
    /// The store answered, but not in the form that was agreed.
    #[error("the store's answer makes no sense")]
    MalformedReply,
}

fn within(time: &Duration) -> String {
    match time {
        &Duration::ZERO => "in time: it was over when the call came".into(),
        time => format!("within {time:?}"),
    }
}

impl StoreError {
    /// Whether it is known that nothing was charged, nor given back.
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

    /// Every error's name in metrics.
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

    /// The error's name in metrics.
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
    /// Until when a decision that begins now may take, for a caller that waits so long if that is known. Where
    /// decisions take no time, there is no such thing.
    pub fn deadline(&self, caller_timeout: Option<Duration>) -> Option<Instant> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(store) => Some(store.deadline(caller_timeout)),
        }
    }

    /// Decides every call until `deadline`, each in one atomic step, all of them in flight together.
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

    /// Decides every call from what is known, without asking anyone; others are [`StoreError::Overloaded`].
    pub fn decide_from_cache(&self, requests: &[TagRequest]) -> Decisions {
        match self {
            Self::Memory(store) => requests.iter().map(|request| Ok(store.decide(request))).collect(),
            Self::Redis(store) => requests
                .iter()
                .map(|request| store.decide_from_cache(request).ok_or(StoreError::Overloaded))
                .collect(),
        }
    }

    /// Decides calls whose outcome nobody waits for: those that give something back. Where it takes time, it is done
    /// by a task of its own. What fails is tried again for some seconds where that can't give back twice.
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
            // The process is ending.
            (Self::Redis(_), Err(_)) => requests.iter().for_each(|_| metrics::refund(false)),
        }
    }
}

/// Decides calls that give something back, and those that fail again, with growing pauses.
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

/// Whether a call that failed may be made again: it was not made, or it is all the same how often it is.
fn is_retryable(request: &TagRequest, error: &StoreError) -> bool {
    error.charged_nothing() || request.checks().all(|check| matches!(check.hits, Hits::Release(_)))
}
