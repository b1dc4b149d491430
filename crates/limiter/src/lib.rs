//! From the descriptors of a request to a decision: match rules, charge counters, fold the statuses, and refund what a
//! denied request charged.
//!
//! - [`matched`]: the counter that each descriptor matches.
//! - [`lists`]: allow and deny lists, which decide before any counter.
//! - [`shedding`]: rules that shed by the utilization of a service, which decide before any counter too.
//! - [`candidates`]: limits that are compared with those of rules.
//! - [`several`]: several limits of one descriptor.
//! - [`requests`]: requests to the store, one for each hash tag, and one for each rule with several limits.
//! - [`regions`]: own region's share of the limits that all regions enforce together.
//! - [`awaited_loans`]: hits that wait for a loan of another region.
//! - [`precheck`]: a read-only check of other hash tags before charging.
//! - [`decide`]: the limiter, which runs these steps.
//! - [`fold`]: the statuses' decision.
//! - [`deciding`]: the rule that decided, for responses.
//! - [`refund`]: refunds of charges that do not count, [`held_permits`]: permits of a request that passed.
//! - [`named_lease`]: requests that their callers repeat under leases that they name.
//! - [`unknown_domains`]: requests for domains without rules.
//! - [`demand`]: demand of keys, and the limits that it recommends.
//! - [`spread`]: delays that spread the times at which denied clients return.
//! - [`thresholds`]: shares of limits that were used, of which operators are notified.
//! - [`fallback`]: decisions while the store fails, shared out by the number of [`replicas`].

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

mod awaited_loans;
mod bans;
mod candidate_check;
pub mod candidates;
mod counter_match;
mod counters;
mod deadline;
mod decide;
pub mod demand;
pub mod deciding;
pub mod explain;
mod fallback;
mod fold;
mod held_permits;
mod lists;
mod matched;
pub mod metrics;
mod modes;
mod named_lease;
mod precheck;
mod refund;
mod regions;
mod replicas;
mod requests;
mod several;
mod shedding;
mod spread;
pub mod talkers;
mod thresholds;
mod unknown_domains;
pub mod verdict;

use tollgate_rules as rules;
use tollgate_store::request::Requests;

pub use self::{
    awaited_loans::AwaitedLoans,
    bans::{BegunBan, BegunBans},
    counters::{CounterInspector, CounterReading, CounterRequests},
    deadline::Deadline,
    decide::Limiter,
    fallback::Fallback,
    held_permits::HeldPermits,
    modes::Modes,
    named_lease::NotRepeatable,
    regions::OwnShares,
    replicas::Replicas,
    requests::cell_of,
    spread::Spread,
    thresholds::{ReachedThreshold, ReachedThresholds},
};
use self::{
    matched::{Match, Matches},
    metrics::RuleCounters,
};

/// The active rules with their counters, in one snapshot.
pub type ActiveRules = rules::Snapshot<RuleCounters>;

/// Rules, lists and switches that are active when a request arrives.
pub type SnapshotGuard = rules::SnapshotGuard<RuleCounters>;

/// Rules, lists, switches and counters that decide a request.
pub type ActiveSet<'r> = rules::ActiveSet<'r, RuleCounters>;
