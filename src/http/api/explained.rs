//! What one descriptor would meet, as callers are told.

use serde::Serialize;

use super::{counters::Said, request::Pairs};
pub(super) use crate::rules::Listing;
use crate::{
    control::ListEntry,
    limiter::Seen,
    limiter::explain::{Explained, MetRule, Step},
    rules::{List, Overrides, SwitchMode},
    store::StoreError,
};

/// What one descriptor would meet.
#[derive(Debug, Serialize)]
pub(super) struct ExplainedView {
    descriptor: Pairs,
    steps: Vec<StepView>,
    rule: Option<RuleView>,
    counter: Option<CounterView>,
    listed: Option<ListEntry>,
    #[serde(skip)]
    denies: Option<bool>,
    #[serde(skip)]
    is_quota: bool,
    #[serde(skip)]
    may_be_too_soon: bool,
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
struct RuleView {
    rule: String,
    name: String,
    file: String,
    line: usize,
    limit: String,
    switch: Option<SwitchMode>,
    replaced_by: Option<String>,
}

/// A counter, and what it says if the store answers.
#[derive(Debug, Serialize)]
struct CounterView {
    cell: String,
    tag: String,
    slot: u16,
    used: Option<u64>,
    remaining: Option<u32>,
    would_pass: Option<bool>,
    reset_after_ms: Option<u64>,
}

impl ExplainedView {
    /// The view of a descriptor that meets that.
    pub(super) fn new(
        descriptor: Pairs,
        explained: Option<Explained>,
        told: Seen,
        listed: Option<ListEntry>,
        overrides: &Overrides,
    ) -> Self {
        let Some(Explained { steps, rule, counter, gives_back, .. }) = explained else {
            let (denies, is_quota, may_be_too_soon) = (Some(false), false, false);
            return Self {
                descriptor,
                steps: Vec::new(),
                rule: None,
                counter: None,
                listed,
                denies,
                is_quota,
                may_be_too_soon,
            };
        };
        let switch = rule.as_ref().and_then(|rule| overrides.mode_of(&rule.domain, &rule.path));
        let is_spaced = rule.as_ref().is_some_and(|rule| rule.is_spaced);
        let told = told.map(|told| {
            let said = told.map(|verdict| Said::new(verdict, is_spaced));
            said.map(|said| Said {
                would_pass: if gives_back { Some(true) } else { said.would_pass },
                ..said
            })
        });
        let denies = denies(rule.as_ref(), switch, told.as_ref());
        let said = told.and_then(Result::ok);
        let may_be_too_soon = denies.is_none() && said.is_some();
        let counter = counter.map(|counter| CounterView {
            cell: counter.cell,
            tag: counter.tag,
            slot: counter.slot,
            used: said.map(|said| said.used),
            remaining: said.map(|said| said.remaining),
            would_pass: said.and_then(|said| said.would_pass),
            reset_after_ms: said.map(|said| said.reset_after_ms),
        });
        Self {
            descriptor,
            steps: steps.into_iter().map(StepView::from).collect(),
            counter,
            listed,
            denies,
            may_be_too_soon,
            is_quota: rule.as_ref().is_some_and(|rule| rule.is_quota),
            rule: rule.map(|rule| RuleView::new(rule, switch)),
        }
    }

    /// The list that the descriptor is on.
    pub(super) fn list(&self) -> Option<List> {
        self.listed.as_ref().map(|entry| entry.list)
    }

    /// Whether its limit would be exceeded and does something about it, if that is known.
    pub(super) const fn denies(&self) -> Option<bool> {
        self.denies
    }

    /// Whether the limit denies one hit more if it comes too soon after the last one, and has room otherwise.
    pub(super) const fn may_be_too_soon(&self) -> bool {
        self.may_be_too_soon
    }

    /// Whether its limit is a quota.
    pub(super) const fn is_quota(&self) -> bool {
        self.is_quota
    }
}

fn denies(
    rule: Option<&MetRule>,
    switch: Option<SwitchMode>,
    told: Option<&Result<Said, StoreError>>,
) -> Option<bool> {
    // One that is off limits nothing, and one that is watched denies nothing; nor does one without a counter.
    match (rule, switch, told) {
        (_, Some(SwitchMode::Off | SwitchMode::Shadow), _) | (_, _, None) => Some(false),
        (Some(rule), _, _) if rule.is_watched => Some(false),
        (_, None, Some(Ok(said))) => said.would_pass.map(|passes| !passes),
        (_, None, Some(Err(_))) => None,
    }
}

impl From<Step> for StepView {
    fn from(Step { key, value, taken, passed_over, note }: Step) -> Self {
        Self { key, value, taken, passed_over, note }
    }
}

impl RuleView {
    fn new(rule: MetRule, switch: Option<SwitchMode>) -> Self {
        Self {
            rule: rule.path,
            name: rule.name,
            file: rule.file,
            line: rule.line,
            limit: rule.limit,
            switch,
            replaced_by: rule.replaced_by,
        }
    }
}
