//! `POST /try`: a dry run of a request under the active or other rules, which charges nothing.

use std::{iter, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tollgate_control::{ListEntry, Record, RecordKey, RecordView};
use tollgate_core::algorithm::Verdict;
use tollgate_core::descriptor::{Descriptor, Hits};
use tollgate_limiter::explain::{Explained, Explanation, MatchedCounter, MatchedRule, Step, explain};
use tollgate_limiter::{CounterInspector, CounterReading, CounterRequests, Modes};
use tollgate_rules::{List, Lists, Overridden, Rules, SwitchMode};
use tollgate_store::StoreError;

use super::Api;
use super::extract::{ApiDescriptor, JsonBody, check_descriptors, now_ms};
use super::limits::{self, Lane};
use super::response::{self, ApiResult};
use super::versions::{self, DraftFiles};
use crate::caller::Caller;

/// Reason that the outcome of a limit with `min_interval` is unknown.
const INTERVAL_UNKNOWN: &str = "the limit has room, but a hit passes only min_interval after the previous one, whose time is unknown to a dry run";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DryRunRequest {
    domain: String,
    descriptors: Vec<ApiDescriptor>,
    files: Option<DraftFiles>,
}

/// The rules and list entries that a request matches, before the counters are read.
struct MatchedRequest {
    descriptors: Vec<(ApiDescriptor, Option<Explained>)>,
    text: String,
    requests: Option<CounterRequests>,
    /// Key of each descriptor's list entry.
    listed: Vec<Option<RecordKey>>,
}

/// Runs a request without charging it.
pub(super) async fn run(api: Api, caller: Caller, body: JsonBody<DryRunRequest>) -> ApiResult {
    let JsonBody(request, _permit) = body;
    check_descriptors(&request.descriptors)?;
    let lane = Lane::Read(&caller);
    let DryRunRequest { domain, descriptors, files } = request;
    let drafted = match files {
        Some(DraftFiles(files)) => {
            let options = api.parts.options;
            let load = move || versions::load_valid(&files, options).map(|loaded| Arc::new(loaded.rules));
            Some(api.limits.load(lane, load).await??)
        }
        None => None,
    };
    let lists = api.parts.rules.lists();
    let (shared, active_lists) = (api.clone(), Arc::clone(&lists));
    let find = move || {
        let active = &shared.parts.rules;
        let (rules, overridden) = match drafted {
            Some(rules) => {
                let overridden = Overridden::new(&rules, &active.rule_overrides(), now_ms());
                (rules, Arc::new(overridden))
            }
            None => active.load_overridden().unwrap_or_default(),
        };
        find_matches(&rules, &overridden, &shared.parts.counters, &active_lists, &domain, descriptors)
    };
    let matched = api.limits.scan(lane, find).await?;
    evaluate(&api, matched, &lists).await
}

/// Matches the descriptors. Slow for long values and many regular expressions.
fn find_matches(
    rules: &Rules,
    overridden: &Overridden,
    counters: &CounterInspector,
    lists: &Lists,
    domain: &str,
    requested: Vec<ApiDescriptor>,
) -> MatchedRequest {
    let descriptors: Vec<Descriptor<'_>> =
        requested.iter().map(|descriptor| descriptor.descriptor(Hits::Peek)).collect();
    let explanation = explain(rules, overridden, domain, &descriptors);
    let text = explanation.to_string();
    let requests = rules.domain(domain).map(|domain| counters.requests(domain, overridden, &descriptors));
    let now_ms = now_ms();
    let listed = descriptors.iter().map(|descriptor| {
        let allowing = || lists.allowing(domain, &descriptor.entries, now_ms);
        allowing().or_else(|| lists.denying(domain, &descriptor.entries, now_ms))
    });
    let listed = listed.map(|found| RecordKey::read(&found?.id)).collect();
    let explained: Vec<Option<Explained>> = match explanation {
        Explanation::NoDomain { .. } => requested.iter().map(|_| None).collect(),
        Explanation::Domain { descriptors, .. } => descriptors.into_iter().map(Some).collect(),
    };
    drop(descriptors);
    MatchedRequest { descriptors: requested.into_iter().zip(explained).collect(), text, requests, listed }
}

/// Reads the counters and combines everything to the response. Whether the request is over its limit is unknown if the store
/// does not respond.
async fn evaluate(api: &Api, matched: MatchedRequest, lists: &Lists) -> ApiResult {
    let MatchedRequest { descriptors, text, requests, listed } = matched;
    let readings = match &requests {
        Some(requests) => api.parts.counters.send(requests).await,
        None => Vec::new(),
    };
    let unknown = readings.iter().find_map(|reading| Some(reading.as_ref()?.as_ref().err()?.to_string()));
    let (mut readings, mut views) = (readings.into_iter(), Vec::with_capacity(descriptors.len()));
    for ((descriptor, explained), key) in descriptors.into_iter().zip(listed) {
        // A descriptor without a limit has one as well.
        let count = explained.as_ref().map_or(1, |explained| explained.limits.len().max(1));
        let readings = readings.by_ref().take(count).collect();
        let listed = match key {
            Some(key) => limits::read(api.parts.control.record(key)).await?,
            None => None,
        };
        views.push(DescriptorView::new(descriptor, explained, readings, listed, lists));
    }
    let spacing_note =
        || views.iter().any(|view| view.limit.may_come_too_early).then(|| INTERVAL_UNKNOWN.to_owned());
    let problem = unknown.or_else(spacing_note);
    let is_over_limit = is_over_limit(&views, api.parts.counters.modes);
    response::json(
        &json!({ "is_over_limit": is_over_limit, "descriptors": views, "text": text, "problem": problem }),
    )
}

/// Whether a request with these descriptors is over its limit, if known.
fn is_over_limit(views: &[DescriptorView], modes: Modes) -> Option<bool> {
    let listed = || views.iter().filter_map(|view| view.listed.as_ref());
    let allows = |record| matches!(record, &Record::ListEntry(ListEntry { list: List::Allow, .. }));
    if modes.shadow || listed().any(|view| allows(&view.record)) {
        return Some(false);
    }
    let (mut is_over, mut is_unknown) = (listed().next().is_some(), false);
    let (mut quotas, mut exhausted) = (0, 0);
    for view in views {
        let is_quota = modes.quota || view.limit.is_quota;
        quotas += usize::from(is_quota);
        match view.limit.denies {
            Some(false) => {}
            Some(true) if is_quota => exhausted += 1,
            Some(true) => is_over = true,
            None => is_unknown = true,
        }
    }
    let denies = is_over || (quotas > 0 && quotas == exhausted);
    (denies || !is_unknown).then_some(denies)
}

/// The rule, counter and list entry that a descriptor matches.
#[derive(Debug, Serialize)]
struct DescriptorView {
    descriptor: ApiDescriptor,
    steps: Vec<Step>,
    /// The limit of the rule, with the effect of all limits.
    #[serde(flatten)]
    limit: LimitView,
    /// The other ones of several limits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    beside: Vec<LimitView>,
    listed: Option<RecordView>,
}

/// A limit and its counter; by default that of no rule.
#[derive(Debug, Serialize)]
struct LimitView {
    rule: Option<MatchedRuleView>,
    counter: Option<MatchedCounterView>,
    #[serde(skip)]
    denies: Option<bool>,
    #[serde(skip)]
    is_quota: bool,
    #[serde(skip)]
    may_come_too_early: bool,
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
    #[serde(flatten)]
    counter: MatchedCounter,
    #[serde(flatten)]
    state: CounterState,
}

/// State of a counter; unknown if the store does not respond.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct CounterState {
    used: Option<u64>,
    /// Hits that open leases hold, neither used nor remaining.
    reserved: Option<u64>,
    remaining: Option<u64>,
    /// Whether one hit would pass; unknown with `min_interval`, as a read does not return the time of the last hit.
    would_pass: Option<bool>,
    reset_after_ms: Option<u64>,
}

impl CounterState {
    /// The state that a read returned, of a rule that `spaces_hits` or not.
    fn new(verdict: &Verdict, spaces_hits: bool) -> Self {
        // A read charges nothing, so it is admitted without room for a hit.
        let has_room = verdict.admitted && verdict.remaining > 0;
        let is_known = !has_room || !spaces_hits || verdict.used == 0;
        Self {
            used: Some(verdict.used),
            reserved: Some(verdict.held),
            remaining: Some(verdict.remaining),
            would_pass: is_known.then_some(has_room),
            reset_after_ms: Some(u64::try_from(verdict.reset_after.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

impl DescriptorView {
    /// Combines the explanation of a descriptor with the readings of the counters of its limits.
    fn new(
        descriptor: ApiDescriptor,
        explained: Option<Explained>,
        readings: Vec<CounterReading>,
        listed: Option<RecordView>,
        lists: &Lists,
    ) -> Self {
        let explained = explained.map(|one| (one.steps, one.limits, one.releases_lease));
        let (steps, limits, releases_lease) = explained.unwrap_or_default();
        let mut limits = limits
            .into_iter()
            .zip(readings)
            .map(|((rule, counter), reading)| LimitView::new(rule, counter, reading, releases_lease, lists));
        let mut limit = limits.next().unwrap_or(LimitView::NONE);
        let beside: Vec<LimitView> = limits.collect();
        let each = || iter::once(&limit).chain(&beside);
        // One limit that denies suffices, whatever is unknown of the others.
        let is_denied = each().any(|limit| limit.denies == Some(true));
        let denies = (is_denied || each().all(|limit| limit.denies.is_some())).then_some(is_denied);
        let may_come_too_early = denies.is_none() && each().any(|limit| limit.may_come_too_early);
        (limit.denies, limit.may_come_too_early) = (denies, may_come_too_early);
        Self { descriptor, steps, limit, beside, listed }
    }
}

impl LimitView {
    const NONE: Self =
        Self { rule: None, counter: None, denies: Some(false), is_quota: false, may_come_too_early: false };

    fn new(
        rule: MatchedRule,
        counter: Option<MatchedCounter>,
        reading: CounterReading,
        releases_lease: bool,
        lists: &Lists,
    ) -> Self {
        let mode_of = |path: &str| lists.mode_of(&rule.domain, path);
        let switch = mode_of(&rule.path).or_else(|| mode_of(&rule.descriptor));
        let state = reading.map(|reading| {
            let mut state = CounterState::new(&reading?, rule.spaces_hits);
            state.would_pass = if releases_lease { Some(true) } else { state.would_pass };
            Ok(state)
        });
        let denies = denies(&rule, switch, state.as_ref());
        let state = state.and_then(Result::ok);
        let view = |counter| MatchedCounterView { counter, state: state.unwrap_or_default() };
        Self {
            counter: counter.map(view),
            denies,
            is_quota: rule.is_quota,
            may_come_too_early: denies.is_none() && state.is_some(),
            rule: Some(MatchedRuleView { rule, switch }),
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
