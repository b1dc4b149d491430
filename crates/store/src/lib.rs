//! Stores of counters: in this process, or in Redis.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

pub mod request;
pub mod key;
mod background_queue;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod loans;
pub mod local;
pub mod memory;
pub mod metrics;
pub mod redis;
mod settings;
mod store;

use std::time::Duration;

use tokio::time::Instant;

pub use self::error::{Decisions, LateOutcome, LateReply, StoreError};
pub use self::store::{CounterStore, LoanStep, PendingDecision, Store, TimeLimits};
pub use self::{
    background_queue::BackgroundQueue, local::LastVerdicts, memory::MemoryStore, redis::RedisStore,
    settings::StoreSettings,
};

/// Aligned to two cache lines, since processors fetch lines in pairs: neighbours do not contend for one.
#[derive(Debug)]
#[repr(align(128))]
struct CachePadded<T>(T);

/// The instant a time after another one; the latter if it cannot be represented.
pub(crate) fn after(now: Instant, time: Duration) -> Instant {
    now.checked_add(time).unwrap_or(now)
}

/// The imports of most unit tests.
#[cfg(test)]
mod test_prelude {
    pub(crate) use std::{num::NonZeroU64, time::Duration};

    pub(crate) use tollgate_core::algorithm::{Algorithm, Charging, Parameters, Policy};
    pub(crate) use tollgate_core::clock::{Clock, Timestamp};
    pub(crate) use tollgate_core::descriptor::{Entry, Hits};
    pub(crate) use tollgate_core::quota::{Quota, Unit, Window};
    pub(crate) use tollgate_core::{RecordId, lease::LeaseId};

    pub(crate) use crate::request::{Check, TagRequest, Veto};
    pub(crate) use crate::{MemoryStore, key::CellKey};

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
