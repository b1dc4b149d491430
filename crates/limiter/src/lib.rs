//! From the descriptors of a request to a decision: match rules, charge counters, fold the statuses, and refund what a
//! denied request charged.
//!
//! - [`decide`]: the limiter, which runs these steps and settles charges and permits:
//! - [`matching`]: the limits that each descriptor matches, in a [`plan`], and whether they are in [`shadow_mode`].
//! - [`lists`]: allow and deny lists, which decide before any counter.
//! - [`shedding`]: rules that shed by the utilization of a service, which decide before any counter too.
//! - [`calls`]: the requests to the store that charge the limits, one for each hash tag, and one for each rule with several;
//!   and the precheck, which reads other hash tags before charging.
//! - [`fallback`]: decisions while the store fails, shared out by the [`replica_count`].
//! - [`observe`]: metrics of each limit, [`talkers`], bans that begin, thresholds that are reached, and [`candidates`] that
//!   decide otherwise.
//! - [`fold`]: the statuses of the limits, and the decision.
//! - [`refund`]: charges that are returned, and permits that are released, when the request does not pass.
//!
//! Beside them:
//! - [`regions`]: own region's share of the limits that all regions enforce together.
//! - [`awaited_loans`]: hits that wait for a loan of another region.
//! - [`deciding_rule`]: the rule that decided, for responses.
//! - [`leases`]: permits of a request that passed, and requests that their callers repeat under leases that they name.
//! - [`unknown_domains`]: requests for domains without rules.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

mod awaited_loans;
mod calls;
pub mod candidates;
mod counters;
mod decide;
pub mod deciding_rule;
pub mod decision;
pub mod explain;
mod fallback;
mod fold;
mod leases;
mod lists;
mod matching;
pub mod metrics;
mod observe;
mod plan;
mod refund;
mod regions;
mod replica_count;
mod settings;
mod shadow_mode;
mod shedding;
mod unknown_domains;

use std::time::Duration;

use tollgate_rules as rules;
use tollgate_store::request::Requests;
pub use tollgate_talkers::{self as talkers, demand};

pub use self::counters::{CounterInspector, CounterReading, CounterRequests};
pub use self::leases::{HeldPermits, NotRepeatable};
use self::metrics::RuleCounters;
pub use self::observe::{BegunBan, Observations, ReachedThreshold};
pub use self::{
    awaited_loans::AwaitedLoans,
    calls::cell_of,
    decide::Limiter,
    fallback::Fallback,
    regions::OwnShares,
    replica_count::Replicas,
    settings::{Modes, StoreErrorSettings},
};

/// The active rules with their counters, in one snapshot.
pub type ActiveRules = rules::Snapshot<RuleCounters>;

/// Rules, lists and switches that are active when a request arrives.
pub type SnapshotGuard = rules::SnapshotGuard<RuleCounters>;

/// Rules, lists, switches and counters that decide a request.
pub type ActiveSet<'r> = rules::ActiveSet<'r, RuleCounters>;

/// Deadline of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The decision is due after this time, if the caller states one.
    At(Option<Duration>),
    /// No time is left to call the store: verdicts that are not cached are decided as while the store fails.
    Exceeded,
}

impl Deadline {
    /// Deadline of a caller that states none.
    pub const UNKNOWN: Self = Self::At(None);
}

/// The imports of most unit tests.
#[cfg(test)]
mod test_prelude {
    pub(crate) use std::num::{NonZeroU8, NonZeroU32, NonZeroU64};
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use std::time::Duration;

    pub(crate) use tollgate_core::algorithm::{Algorithm, Parameters, Policy, Verdict};
    pub(crate) use tollgate_core::clock::{Clock, Timestamp};
    pub(crate) use tollgate_core::descriptor::{Descriptor, Entries, Entry, Hits};
    pub(crate) use tollgate_core::quota::{Quota, Unit, Window};
    pub(crate) use tollgate_core::{RecordId, lease::LeaseId};
    pub(crate) use tollgate_rules::{
        Limit, Lists, OnStoreError, Overridden, Rules, SwitchMode, Switched, config::Options,
    };
    pub(crate) use tollgate_store::{MemoryStore, Store, StoreError, key::CellKey};

    pub(crate) use crate::calls::{self, ChargeTerms};
    pub(crate) use crate::decision::{Code, Decision};
    pub(crate) use crate::{
        ActiveRules, Deadline, HeldPermits, Limiter, Modes, Replicas, matching, plan::Changes,
    };

    /// The rules of one file.
    pub(crate) fn rules_of(yaml: &str, options: Options) -> Rules {
        let file = ("rules.yaml".to_owned(), yaml.as_bytes().to_vec());
        tollgate_rules::config::load_files([file], options).expect("valid").rules
    }

    /// Active rules, which are those of one file.
    pub(crate) fn active_rules(yaml: &str, options: Options) -> Arc<ActiveRules> {
        let active = Arc::new(ActiveRules::default());
        active.replace(Arc::new(rules_of(yaml, options)));
        active
    }

    pub(crate) fn descriptor<'e>(entries: &[(&'e str, &'e str)], hits: Hits) -> Descriptor<'e> {
        let entries = entries.iter().map(|(key, value)| Entry { key, value }).collect();
        Descriptor { entries, limit: None, hits }
    }

    /// Decides a request by the active rules, and reads the decision.
    pub(crate) async fn decided<T>(
        limiter: &Limiter,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        read: impl FnOnce(Decision<'_>, Option<HeldPermits>) -> T,
    ) -> T {
        let rules = limiter.rules();
        let active = rules.get().expect("rules");
        let decided = limiter.decide(active, domain, descriptors, Deadline::UNKNOWN).await;
        let (decision, permits) = decided.expect("decided");
        read(decision, permits)
    }
}
