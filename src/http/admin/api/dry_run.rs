//! `POST /try`: a dry run of a request under the active or other rules, which charges nothing.

use std::sync::Arc;

use axum::{Extension, extract::State};
use serde::{Deserialize, Serialize};
use tollgate_control::ListEntry;
use tollgate_core::descriptor::{Descriptor, Hits};
use tollgate_limiter::{
    CounterInspector, CounterRequests, Modes,
    explain::{Explained, Explanation, explain},
};
use tollgate_rules::{List, Lists, Overridden, Rules};

use super::{
    draft::{self, DraftFiles},
    dry_run_view::{DescriptorView, Listing},
    extract::{ApiDescriptor, JsonBody, check_descriptors, now_ms},
    limits::Lane,
    response::{self, ApiResult},
    state::Api,
    timeouts,
};
use crate::http::admin::auth::Caller;

/// Reason that the outcome of a limit with `min_interval` is unknown.
const INTERVAL_UNKNOWN: &str = "the limit has room, but a hit passes only min_interval after the previous one, whose time is unknown to a dry run";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DryRunRequest {
    domain: String,
    descriptors: Vec<ApiDescriptor>,
    files: Option<DraftFiles>,
}

/// Outcome of a dry run.
#[derive(Debug, Serialize)]
struct DryRunResponse {
    /// Unknown if the store does not respond.
    is_over_limit: Option<bool>,
    descriptors: Vec<DescriptorView>,
    text: String,
    /// Reason that something is unknown, if so.
    problem: Option<String>,
}

/// The rules and list entries that a request matches, before the counters are read.
struct MatchedRequest {
    descriptors: Vec<(ApiDescriptor, Option<Explained>)>,
    text: String,
    requests: Option<CounterRequests>,
    /// The active part of each descriptor's list entry.
    listed: Vec<Option<ListEntry>>,
}

/// Runs a request without charging it.
pub(super) async fn run(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    JsonBody(request, _permit): JsonBody<DryRunRequest>,
) -> ApiResult {
    check_descriptors(&request.descriptors, &api.parts.bounds)?;
    let lane = Lane::Read(&caller);
    let DryRunRequest { domain, descriptors, files } = request;
    let drafted = match files {
        Some(DraftFiles(files)) => {
            let options = api.parts.options;
            let load = move || draft::load_valid(&files, options).map(|loaded| Arc::new(loaded.rules));
            Some(api.limits.load(lane, load).await??)
        }
        None => None,
    };
    let lists = api.parts.rules.lists();
    let (shared, active_lists) = (Arc::clone(&api), Arc::clone(&lists));
    let find = move || {
        let active = &shared.parts.rules;
        let (rules, overridden) = match drafted {
            Some(rules) => {
                let overridden = Overridden::new(&rules, &active.rule_overrides(), now_ms());
                (rules, Arc::new(overridden))
            }
            None => active.load_overridden().unwrap_or_default(),
        };
        find_matches((&rules, &overridden), &shared.parts.counters, &active_lists, &domain, descriptors)
    };
    let matched = api.limits.scan(lane, find).await?;
    response::json(&evaluate(&api, matched, &lists).await)
}

/// Matches the descriptors. Slow for long values and many regular expressions.
fn find_matches(
    (rules, overridden): (&Rules, &Overridden),
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
    let listed = listed.map(|found| Some(active_part(found?, domain))).collect();
    let explained: Vec<Option<Explained>> = match explanation {
        Explanation::NoDomain { .. } => requested.iter().map(|_| None).collect(),
        Explanation::Domain { descriptors, .. } => descriptors.into_iter().map(Some).collect(),
    };
    drop(descriptors);
    MatchedRequest { descriptors: requested.into_iter().zip(explained).collect(), text, requests, listed }
}

/// Reads the counters and combines everything to the response.
async fn evaluate(api: &Api, matched: MatchedRequest, lists: &Lists) -> DryRunResponse {
    let MatchedRequest { descriptors, text, requests, listed } = matched;
    let mut reading = match &requests {
        Some(requests) => api.parts.counters.send(requests).await,
        None => descriptors.iter().map(|_| None).collect(),
    };
    let listed = complete_entries(api, listed).await;
    let unknown = reading.iter().find_map(|reading| Some(reading.as_ref()?.as_ref().err()?.to_string()));
    // Behind those of the descriptors, in their order.
    let mut beside = reading.split_off(descriptors.len().min(reading.len())).into_iter();
    let views = descriptors.into_iter().zip(reading).zip(listed);
    let views: Vec<DescriptorView> = views
        .map(|(((descriptor, explained), reading), listed)| {
            let count = explained.as_ref().map_or(0, |explained| explained.extra.len());
            let beside = beside.by_ref().take(count);
            DescriptorView::new(descriptor, explained, reading, beside, (listed, lists))
        })
        .collect();
    let min_interval_note =
        || views.iter().any(DescriptorView::may_violate_min_interval).then(|| INTERVAL_UNKNOWN.to_owned());
    let problem = unknown.or_else(min_interval_note);
    let is_over_limit = is_over_limit(&views, api.parts.counters.modes());
    DryRunResponse { is_over_limit, descriptors: views, text, problem }
}

/// Adds author and reason, which are not part of the active lists.
async fn complete_entries(api: &Api, found: Vec<Option<ListEntry>>) -> Vec<Option<ListEntry>> {
    if found.iter().all(Option::is_none) {
        return found;
    }
    let runtime = timeouts::read(api.parts.control.runtime()).await.unwrap_or_default();
    let complete = |partial: ListEntry| match runtime.entries.iter().find(|entry| entry.id == partial.id) {
        Some(entry) => entry.clone(),
        None => partial,
    };
    found.into_iter().map(|found| found.map(complete)).collect()
}

/// The part of a list entry that is active.
fn active_part(listing: &Listing, domain: &str) -> ListEntry {
    ListEntry {
        id: listing.id().to_owned(),
        list: listing.list(),
        domain: domain.to_owned(),
        descriptor: Vec::new(),
        reason: String::new(),
        author: String::new(),
        created_at_ms: 0,
        expires_at_ms: listing.expires_at_ms(),
    }
}

/// Whether a request with these descriptors is over its limit, if known.
fn is_over_limit(views: &[DescriptorView], modes: Modes) -> Option<bool> {
    let is_listed = |list: List| views.iter().any(|view| view.list() == Some(list));
    if modes.shadow || is_listed(List::Allow) {
        return Some(false);
    }
    let (mut is_over, mut is_unknown) = (is_listed(List::Deny), false);
    let (mut quotas, mut exhausted) = (0_usize, 0_usize);
    for view in views {
        let is_quota = modes.quota || view.is_quota();
        quotas = quotas.saturating_add(usize::from(is_quota));
        match view.denies() {
            Some(false) => {}
            Some(true) if is_quota => exhausted = exhausted.saturating_add(1),
            Some(true) => is_over = true,
            None => is_unknown = true,
        }
    }
    match is_over || (quotas > 0 && quotas == exhausted) {
        true => Some(true),
        false => (!is_unknown).then_some(false),
    }
}
