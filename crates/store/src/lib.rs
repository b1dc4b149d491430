//! Stores of counters: in this process, or in Redis.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

pub mod request;
pub mod key;
mod background_refund;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod loans;
pub mod memory;
pub mod metrics;
pub mod primary;
pub mod redis;

use std::time::Duration;

use futures_util::future::join_all;
use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{
    RecordId,
    algorithm::{LastVerdict, Verdict},
    clock::Timestamp,
};

pub use self::{
    background_refund::BackgroundQueue,
    error::{LateOutcome, LateReply, StoreError},
    memory::MemoryStore,
    redis::{LastVerdicts, RedisStore},
};
use self::{
    key::CellKey,
    loans::{Loans, SharedCounter},
    primary::PrimaryRouter,
    request::{Cell, Check, TagRequest, Verdicts},
};

/// A store of counters, as used by one worker. Clones are handles on the same counters.
#[derive(Clone, Debug)]
pub enum Store {
    /// In this process; its limits apply to this instance alone.
    Memory(MemoryStore),
    /// In a Redis that instances share.
    Redis(RedisStore),
    /// One of these, with calls to the primary region.
    PrimaryRouter(PrimaryRouter),
}

/// Result of each request, in the order of the requests.
pub type Decisions = SmallVec<[Result<Verdicts, StoreError>; 1]>;

impl Store {
    /// Deadline of a decision that begins now, given the timeout of its caller, if known. `None` where decisions take
    /// no time.
    pub fn deadline(&self, caller_timeout: Option<Duration>) -> Option<Instant> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(store) => Some(store.deadline(caller_timeout)),
            Self::PrimaryRouter(_) => Some(PrimaryRouter::deadline(caller_timeout)),
        }
    }

    /// The Redis of the own region, if its counters are there.
    pub fn redis(&self) -> Option<&RedisStore> {
        match self.own() {
            Self::Redis(store) => Some(store),
            Self::Memory(_) | Self::PrimaryRouter(_) => None,
        }
    }

    /// The store of the own region, behind the calls to the primary region.
    fn own(&self) -> &Self {
        match self {
            Self::PrimaryRouter(store) => store.own(),
            own => own,
        }
    }

    /// Decides every request until `deadline`, each in one atomic step, all of them in flight together.
    pub async fn decide(&self, requests: &[TagRequest], deadline: Option<Instant>) -> Decisions {
        match self {
            // Boxed, so that the future of the usual case is small.
            Self::PrimaryRouter(store) => Box::pin(store.decide(requests, deadline)).await,
            own => own.decide_here(requests, deadline).await,
        }
    }

    /// Decides every request in this store itself.
    async fn decide_here(&self, requests: &[TagRequest], deadline: Option<Instant>) -> Decisions {
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
            // The own store of a region is not that of a region.
            Self::PrimaryRouter(_) => requests.iter().map(|_| Err(StoreError::Overloaded)).collect(),
        }
    }

    /// Takes the last verdict of a counter that was in use, and the time at which a counter was decided last. A store in
    /// memory needs none.
    pub fn take_last_verdict(&self, cell: &CellKey, record: RecordId) -> Option<(LastVerdict, Timestamp)> {
        self.redis()?.take_last_verdict(cell, record)
    }

    /// The denial of a check that the store did not decide, if its counter has a cached ban.
    pub fn cached_ban(&self, cell: &Cell, check: &Check) -> Option<Verdict> {
        self.redis()?.cached_ban(cell, check)
    }

    /// Runs a step on the loans of a counter, and stores what it leaves. The step runs again if the counter changes in the
    /// meantime; what it returned before is void.
    ///
    /// # Errors
    /// [`StoreError::Declined`] for a counter that changes too often, others as for a decision. After
    /// [`StoreError::Timeout`] and [`StoreError::Disconnected`] it is unknown whether the step was stored; it may run again
    /// nevertheless, since the ledger shows it.
    pub async fn with_loans<T>(
        &self,
        counter: &SharedCounter,
        time_limit: Duration,
        step: impl FnMut(&mut Loans) -> T,
    ) -> Result<T, StoreError> {
        match self.own() {
            Self::Memory(store) => memory::with_loans(store, counter, step),
            Self::Redis(store) => redis::with_loans(store, counter, time_limit, step).await,
            Self::PrimaryRouter(_) => Err(StoreError::Overloaded),
        }
    }

    /// Decides every request from this worker's cache, without a call to the server; [`StoreError::Overloaded`] for
    /// those that the cache does not cover.
    pub fn decide_from_cache(&self, requests: &[TagRequest]) -> Decisions {
        match self {
            Self::PrimaryRouter(store) => store.decide_from_cache(requests),
            own => requests.iter().map(|request| own.decide_one_from_cache(request)).collect(),
        }
    }

    fn decide_one_from_cache(&self, request: &TagRequest) -> Result<Verdicts, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.decide(request)),
            Self::Redis(store) => store.decide_from_cache(request).ok_or(StoreError::Overloaded),
            Self::PrimaryRouter(_) => Err(StoreError::Overloaded),
        }
    }
}

/// The instant a time after another one; the latter if it cannot be represented.
pub(crate) fn after(now: Instant, time: Duration) -> Instant {
    now.checked_add(time).unwrap_or(now)
}

/// The imports of most unit tests.
#[cfg(test)]
mod test_prelude {
    pub(crate) use std::{num::NonZeroU64, time::Duration};

    pub(crate) use tollgate_core::{
        RecordId,
        algorithm::{Algorithm, Charging, Parameters, Policy},
        clock::{Clock, Timestamp},
        descriptor::{Entry, Hits},
        lease::LeaseId,
        quota::{Quota, Unit, Window},
    };

    pub(crate) use crate::{
        MemoryStore,
        key::CellKey,
        request::{Check, TagRequest, Veto},
    };

    /// A limit without parameters.
    pub(crate) fn policy(algorithm: Algorithm, limit: u64, seconds: u32) -> Policy {
        let quota = Quota { limit, window: Window::from_seconds(seconds).expect("in range") };
        Policy::new(algorithm, quota, &Parameters::default()).expect("valid")
    }

    /// A check of the counter that its rule alone has, whose denial keeps all counters from being charged.
    pub(crate) fn check(policy: Policy, hits: Hits) -> Check {
        let record = RecordId::alone(policy.algorithm());
        Check { veto: Veto::Alone, ..Check::own(record, policy, hits) }
    }

    /// The cell of a value.
    #[allow(clippy::needless_pass_by_value)] // Numbers and texts alike.
    pub(crate) fn cell(value: impl ToString) -> CellKey {
        CellKey::open("d", [Entry { key: "k", value: &value.to_string() }].into_iter())
    }

    /// A request for one check in the cell of a value.
    pub(crate) fn request_of(value: impl ToString, check: Check) -> TagRequest {
        TagRequest::new(Charging::Independent, cell(value), check)
    }
}
