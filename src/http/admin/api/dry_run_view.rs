//! JSON form of one descriptor in a dry run.

use serde::Serialize;
use tollgate_control::ListEntry;
use tollgate_limiter::{
    CounterReading,
    explain::{Explained, MatchedRule, Step},
};
use tollgate_rules::{List, Overrides, SwitchMode};
use tollgate_store::StoreError;

use super::{counters::CounterState, extract::ApiDescriptor};
pub(super) use tollgate_rules::Listing;

/// The rule, counter and list entry that a descriptor matches.
#[derive(Debug, Serialize)]
pub(super) struct DescriptorView {
    descriptor: ApiDescriptor,
    steps: Vec<StepView>,
    rule: Option<MatchedRuleView>,
    counter: Option<MatchedCounterView>,
    listed: Option<ListEntry>,
    #[serde(skip)]
    denies: Option<bool>,
    #[serde(skip)]
    is_quota: bool,
    #[serde(skip)]
    may_violate_min_interval: bool,
}

#[derive(Debug, Serialize)]
struct StepView {
    key: String,
    value: String,
    taken: Option<String>,
    passed_over: Vec<String>,
    note: Option<String>,
}

#[derive(Debug, Serialize)]
struct MatchedRuleView {
    rule: String,
    name: String,
    file: String,
    line: usize,
    limit: String,
    switch: Option<SwitchMode>,
    #[serde(rename = "override")]
    by_override: Option<AppliedOverrideView>,
    replaced_by: Option<String>,
}

/// The override that decides in place of a rule, and what the rule itself states.
#[derive(Debug, Serialize)]
struct AppliedOverrideView {
    id: String,
    is_of_key: bool,
    expires_at_ms: Option<u64>,
    rule_limit: String,
}

/// A counter, with its state if the store responds.
#[derive(Debug, Serialize)]
struct MatchedCounterView {
    cell: String,
    tag: String,
    slot: u16,
    used: Option<u64>,
    remaining: Option<u64>,
    would_pass: Option<bool>,
    reset_after_ms: Option<u64>,
}

impl DescriptorView {
    pub(super) fn new(
        descriptor: ApiDescriptor,
        explained: Option<Explained>,
        reading: CounterReading,
        listed: Option<ListEntry>,
        overrides: &Overrides,
    ) -> Self {
        let Some(Explained { steps, rule, counter, releases_lease, .. }) = explained else {
            return Self::unmatched(descriptor, listed);
        };
        let switch = rule.as_ref().and_then(|rule| overrides.mode_of(&rule.domain, &rule.path));
        let has_min_interval = rule.as_ref().is_some_and(|rule| rule.has_min_interval);
        let state = reading.map(|reading| {
            let state = reading.map(|verdict| CounterState::new(verdict, has_min_interval));
            state.map(|state| CounterState {
                would_pass: if releases_lease { Some(true) } else { state.would_pass },
                ..state
            })
        });
        let denies = denies(rule.as_ref(), switch, state.as_ref());
        let state = state.and_then(Result::ok);
        let may_violate_min_interval = denies.is_none() && state.is_some();
        let counter = counter.map(|counter| MatchedCounterView {
            cell: counter.cell,
            tag: counter.tag,
            slot: counter.slot,
            used: state.map(|state| state.used),
            remaining: state.map(|state| state.remaining),
            would_pass: state.and_then(|state| state.would_pass),
            reset_after_ms: state.map(|state| state.reset_after_ms),
        });
        Self {
            descriptor,
            steps: steps.into_iter().map(StepView::from).collect(),
            counter,
            listed,
            denies,
            may_violate_min_interval,
            is_quota: rule.as_ref().is_some_and(|rule| rule.is_quota),
            rule: rule.map(|rule| MatchedRuleView::new(rule, switch)),
        }
    }

    fn unmatched(descriptor: ApiDescriptor, listed: Option<ListEntry>) -> Self {
        let (denies, is_quota, may_violate_min_interval) = (Some(false), false, false);
        let (steps, rule, counter) = (Vec::new(), None, None);
        Self { descriptor, steps, rule, counter, listed, denies, is_quota, may_violate_min_interval }
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

fn denies(
    rule: Option<&MatchedRule>,
    switch: Option<SwitchMode>,
    state: Option<&Result<CounterState, StoreError>>,
) -> Option<bool> {
    // A rule that is off, in shadow mode or without a counter denies nothing.
    match (rule, switch, state) {
        (_, Some(SwitchMode::Off | SwitchMode::Shadow), _) | (_, _, None) => Some(false),
        (Some(rule), _, _) if rule.is_shadow => Some(false),
        (_, None | Some(SwitchMode::Emergency), Some(Ok(state))) => state.would_pass.map(|passes| !passes),
        (_, None | Some(SwitchMode::Emergency), Some(Err(_))) => None,
    }
}

impl From<Step> for StepView {
    fn from(Step { key, value, taken, passed_over, note }: Step) -> Self {
        Self { key, value, taken, passed_over, note }
    }
}

impl MatchedRuleView {
    fn new(rule: MatchedRule, switch: Option<SwitchMode>) -> Self {
        Self {
            rule: rule.path,
            name: rule.name,
            file: rule.file,
            line: rule.line,
            limit: rule.limit,
            switch,
            by_override: rule.by_override.map(|applied| AppliedOverrideView {
                id: applied.id,
                is_of_key: applied.is_of_key,
                expires_at_ms: applied.ends_at_ms,
                rule_limit: applied.rule_limit,
            }),
            replaced_by: rule.replaced_by,
        }
    }
}
