//! JSON form of one descriptor in a dry run.

use serde::Serialize;
use tollgate_control::ListEntry;
use tollgate_core::algorithm::Verdict;
use tollgate_limiter::{
    CounterReading,
    explain::{Explained, MatchedCounter, MatchedRule, Step},
};
use tollgate_rules::{List, Lists, SwitchMode};
use tollgate_store::StoreError;

use super::extract::ApiDescriptor;
pub(super) use tollgate_rules::Listing;

/// The rule, counter and list entry that a descriptor matches.
#[derive(Debug, Serialize)]
pub(super) struct DescriptorView {
    descriptor: ApiDescriptor,
    steps: Vec<Step>,
    rule: Option<MatchedRuleView>,
    counter: Option<MatchedCounterView>,
    /// The other ones of several limits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    beside: Vec<LimitView>,
    listed: Option<ListEntry>,
    #[serde(skip)]
    denies: Option<bool>,
    #[serde(skip)]
    is_quota: bool,
    #[serde(skip)]
    may_violate_min_interval: bool,
}

/// A limit and its counter.
#[derive(Debug, Serialize)]
struct LimitView {
    rule: MatchedRuleView,
    counter: Option<MatchedCounterView>,
    #[serde(skip)]
    denies: Option<bool>,
    #[serde(skip)]
    is_quota: bool,
    #[serde(skip)]
    may_violate_min_interval: bool,
}

/// A rule and its switch.
#[derive(Debug, Serialize)]
struct MatchedRuleView {
    #[serde(flatten)]
    rule: MatchedRule,
    switch: Option<SwitchMode>,
}

/// A counter, with its state if the store responds.
#[derive(Debug, Serialize)]
struct MatchedCounterView {
    cell: String,
    tag: String,
    slot: u16,
    used: Option<u64>,
    reserved: Option<u64>,
    remaining: Option<u64>,
    would_pass: Option<bool>,
    reset_after_ms: Option<u64>,
}

/// State of a counter.
#[derive(Clone, Copy, Debug)]
struct CounterState {
    used: u64,
    /// Hits that open leases hold, neither used nor remaining.
    reserved: u64,
    remaining: u64,
    /// Whether one hit would pass; unknown with `min_interval`, as a read does not return the time of the last hit.
    would_pass: Option<bool>,
    reset_after_ms: u64,
}

impl CounterState {
    /// The state that a read returned; `has_min_interval` with `min_interval`.
    fn new(verdict: Verdict, has_min_interval: bool) -> Self {
        // A read charges nothing, so it is admitted without room for a hit.
        let has_room = verdict.admitted && verdict.remaining > 0;
        let is_known = !has_room || !has_min_interval || verdict.used == 0;
        Self {
            used: verdict.used,
            reserved: verdict.held,
            remaining: verdict.remaining,
            would_pass: is_known.then_some(has_room),
            reset_after_ms: u64::try_from(verdict.reset_after.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl DescriptorView {
    /// Combines the explanation of a descriptor with the readings of its counters: that of the rule, then those of the
    /// limits beside it.
    pub(super) fn new(
        descriptor: ApiDescriptor,
        explained: Option<Explained>,
        reading: CounterReading,
        beside: impl Iterator<Item = CounterReading>,
        (listed, lists): (Option<ListEntry>, &Lists),
    ) -> Self {
        let Some(explained) = explained else { return Self::unmatched(descriptor, listed) };
        let Explained { steps, rule, counter, extra: limits, releases_lease, .. } = explained;
        let Some(rule) = rule else { return Self { steps, ..Self::unmatched(descriptor, listed) } };
        let first = LimitView::new((rule, counter), reading, releases_lease, lists);
        let beside: Vec<LimitView> = limits
            .into_iter()
            .zip(beside)
            .map(|(limit, reading)| LimitView::new(limit, reading, false, lists))
            .collect();
        let each = || std::iter::once(&first).chain(&beside);
        // One limit that denies suffices, whatever is unknown of the others.
        let denies = match each().any(|limit| limit.denies == Some(true)) {
            true => Some(true),
            false => each().all(|limit| limit.denies.is_some()).then_some(false),
        };
        let may_violate_min_interval = denies.is_none() && each().any(|limit| limit.may_violate_min_interval);
        let LimitView { rule, counter, is_quota, .. } = first;
        Self {
            descriptor,
            steps,
            rule: Some(rule),
            counter,
            beside,
            listed,
            denies,
            is_quota,
            may_violate_min_interval,
        }
    }

    fn unmatched(descriptor: ApiDescriptor, listed: Option<ListEntry>) -> Self {
        let (denies, is_quota, may_violate_min_interval) = (Some(false), false, false);
        let (steps, rule, counter, beside) = (Vec::new(), None, None, Vec::new());
        Self { descriptor, steps, rule, counter, beside, listed, denies, is_quota, may_violate_min_interval }
    }

    /// The list that the descriptor is on.
    pub(super) fn list(&self) -> Option<List> {
        self.listed.as_ref().map(|entry| entry.list)
    }

    /// Whether its limit would deny the request, if known.
    pub(super) const fn denies(&self) -> Option<bool> {
        self.denies
    }

    /// Whether the limit has room but may deny a hit because of `min_interval`.
    pub(super) const fn may_violate_min_interval(&self) -> bool {
        self.may_violate_min_interval
    }

    /// Whether its rule is in quota mode.
    pub(super) const fn is_quota(&self) -> bool {
        self.is_quota
    }
}

impl LimitView {
    fn new(
        (rule, counter): (MatchedRule, Option<MatchedCounter>),
        reading: CounterReading,
        releases_lease: bool,
        lists: &Lists,
    ) -> Self {
        let mode_of = |path: &str| lists.mode_of(&rule.domain, path);
        let switch = mode_of(&rule.path).or_else(|| mode_of(&rule.descriptor));
        let state = reading.map(|reading| {
            let state = reading.map(|verdict| CounterState::new(verdict, rule.has_min_interval));
            state.map(|state| CounterState {
                would_pass: if releases_lease { Some(true) } else { state.would_pass },
                ..state
            })
        });
        let denies = denies(&rule, switch, state.as_ref());
        let state = state.and_then(Result::ok);
        let counter = counter.map(|counter| MatchedCounterView {
            cell: counter.cell,
            tag: counter.tag,
            slot: counter.slot,
            used: state.map(|state| state.used),
            reserved: state.map(|state| state.reserved),
            remaining: state.map(|state| state.remaining),
            would_pass: state.and_then(|state| state.would_pass),
            reset_after_ms: state.map(|state| state.reset_after_ms),
        });
        Self {
            counter,
            denies,
            is_quota: rule.is_quota,
            may_violate_min_interval: denies.is_none() && state.is_some(),
            rule: MatchedRuleView { rule, switch },
        }
    }
}

fn denies(
    rule: &MatchedRule,
    switch: Option<SwitchMode>,
    state: Option<&Result<CounterState, StoreError>>,
) -> Option<bool> {
    // A rule that is off, in shadow mode or without a counter denies nothing.
    match (switch, state) {
        (Some(SwitchMode::Off | SwitchMode::Shadow), _) | (_, None) => Some(false),
        _ if rule.is_shadow => Some(false),
        (None | Some(SwitchMode::Emergency), Some(Ok(state))) => state.would_pass.map(|passes| !passes),
        (None | Some(SwitchMode::Emergency), Some(Err(_))) => None,
    }
}
