//! `GET /usage`: the use of limits; `POST /counters/…`: resetting a counter, and refunding hits.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_control::{Action, ListedBan, pairs_text};
use tollgate_core::algorithm::{Algorithm, Verdict};
use tollgate_core::{descriptor::Hits, quota::Quota};
use tollgate_limiter::CounterRequests;
use tollgate_rules::{CanonicalAddresses, Limit, Rule, limit_text};

use super::Api;
use super::extract::{ApiDescriptor, DescriptorText, Integer, JsonBody, QueryParams, Reason, now_ms};
use super::limits::{self, Lane};
use super::response::{self, ApiError, ApiResult};
use crate::caller::Caller;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResetRequest {
    domain: String,
    descriptor: ApiDescriptor,
    reason: Option<Reason>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RefundRequest {
    domain: String,
    descriptor: ApiDescriptor,
    hits: Integer,
    reason: Option<Reason>,
}

/// Query of `GET /usage`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageQuery {
    domain: String,
    descriptor: DescriptorText,
}

/// Use of the limits that a descriptor matches.
#[derive(Debug, Serialize, Deserialize)]
pub struct UsageView {
    pub domain: String,
    pub limits: Vec<LimitUsage>,
}

/// Use of a limit.
#[derive(Debug, Serialize, Deserialize)]
pub struct LimitUsage {
    pub rule: String,
    /// Name of the limit; empty without one.
    pub name: String,
    pub limit: String,
    pub limit_hits: u64,
    /// Unknown of a concurrency limit, which has no window.
    pub window_seconds: Option<u32>,
    pub used: u64,
    /// Hits that open leases hold, neither used nor remaining.
    pub reserved: u64,
    pub remaining: u64,
    /// Time at which the counter equals an unused one, in milliseconds since 1970.
    pub resets_at_ms: u64,
    /// Used hits that this instance charged ahead and holds.
    pub held: u64,
}

impl LimitUsage {
    fn new(target: TargetRule, quota: Quota, verdict: &Verdict, held: u64) -> Self {
        let TargetRule { rule, limit } = target;
        let holds_permits = rule.algorithm().is_some_and(Algorithm::holds_permits);
        let resets_at = verdict.decided_at.plus(verdict.reset_after);
        Self {
            rule: rule.path(),
            name: rule.name.to_string(),
            limit,
            limit_hits: quota.limit,
            window_seconds: (!holds_permits).then(|| quota.window.seconds()),
            used: verdict.used,
            reserved: verdict.held,
            remaining: verdict.remaining,
            resets_at_ms: resets_at.as_millis(),
            held,
        }
    }
}

/// The counters that a descriptor matches by the active rules, and the request to their store.
struct CounterTarget {
    /// The rule; several if the descriptor has several limits.
    rules: Vec<TargetRule>,
    /// Whether the descriptor names a lease of a concurrency limit, whose permits it would release.
    releases_lease: bool,
    requests: CounterRequests,
}

struct TargetRule {
    rule: Arc<Rule>,
    /// Text of its limit.
    limit: String,
}

/// Reads the use of the limits that a descriptor matches.
pub(super) async fn usage(api: Api, caller: Caller, query: QueryParams<UsageQuery>) -> ApiResult {
    let QueryParams(UsageQuery { domain, descriptor: DescriptorText(descriptor) }) = query;
    let target = find(&api, Lane::Read(&caller), domain.clone(), descriptor, Hits::Peek).await?;
    respond(&api, domain, target).await
}

/// Resets a counter to unused.
pub(super) async fn reset(api: Api, caller: Caller, body: JsonBody<ResetRequest>) -> ApiResult {
    let JsonBody(request, _permit) = body;
    let subject = format!("{} {}", request.domain, pairs_text(&request.descriptor.0));
    let (domain, descriptor) = (request.domain.clone(), request.descriptor.clone());
    let target = find(&api, Lane::Write, request.domain, request.descriptor, Hits::reset()).await?;
    audit(&api, &caller, &target, Action::ResetCounter, subject, request.reason).await?;
    let rules = target.rules.iter().map(|target| &target.rule);
    let banning: Vec<String> = rules.filter(|rule| rule.ban.is_some()).map(|rule| rule.path()).collect();
    let response = respond(&api, domain.clone(), target).await?;
    for rule in banning {
        let id = ListedBan::id_of(&domain, &rule, &descriptor.0);
        // The list of bans only shows: a failure changes nothing else.
        let _ = limits::write(api.parts.control.remove_ban(&id)).await;
        limits::write(api.parts.control.lift_automatic_of(&id, &caller.name)).await?;
    }
    Ok(response)
}

/// Refunds hits to a counter.
pub(super) async fn refund(api: Api, caller: Caller, body: JsonBody<RefundRequest>) -> ApiResult {
    let JsonBody(request, _permit) = body;
    let Integer(hits) = request.hits;
    if hits == 0 {
        return Err(ApiError::BadRequest("hits: expected 1 or more".to_owned()));
    }
    let subject = format!("{} {} by {hits}", request.domain, pairs_text(&request.descriptor.0));
    let (domain, hits) = (request.domain.clone(), Hits::refund(hits));
    let target = find(&api, Lane::Write, request.domain, request.descriptor, hits).await?;
    audit(&api, &caller, &target, Action::RefundCounter, subject, request.reason).await?;
    respond(&api, domain, target).await
}

fn counter_not_found() -> ApiError {
    ApiError::NotFound("no rule with a limit matches this descriptor".to_owned())
}

/// Finds the counter that a descriptor matches. Runs on a blocking thread: long values and many regular expressions are
/// slow.
async fn find(
    api: &Api,
    lane: Lane<'_>,
    domain: String,
    descriptor: ApiDescriptor,
    hits: Hits,
) -> Result<CounterTarget, ApiError> {
    descriptor.check()?;
    let shared = api.clone();
    let target = api.limits.scan(lane, move || {
        let (active, overridden) = shared.parts.rules.load_overridden()?;
        let domain = active.domain(&domain)?;
        let stated = [descriptor.descriptor(hits)];
        let canonical = CanonicalAddresses::of(domain, &stated);
        let stated = canonical.apply(&stated);
        let descriptor = stated.first()?;
        let lease = domain.root.rule_of_lease(&descriptor.entries);
        let by_lease = lease.map(|(rule, _, _)| rule);
        let each = by_lease.into_iter().chain(domain.root.limits(&descriptor.entries));
        let rules: Vec<&Arc<Rule>> =
            each.map(|rule| overridden.rule_of(rule, &descriptor.entries, now_ms)).collect();
        rules.iter().find_map(|rule| rule.algorithm())?;
        let describe =
            |rule: &Arc<Rule>| TargetRule { rule: Arc::clone(rule), limit: limit_text(domain, rule) };
        Some(CounterTarget {
            rules: rules.into_iter().map(describe).collect(),
            releases_lease: by_lease.is_some(),
            requests: shared.parts.counters.requests(domain, &overridden, &stated),
        })
    });
    target.await?.ok_or_else(counter_not_found)
}

/// Records a change of a counter in the audit log before it is made: no change without a record.
async fn audit(
    api: &Api,
    caller: &Caller,
    target: &CounterTarget,
    action: Action,
    subject: String,
    reason: Option<Reason>,
) -> Result<(), ApiError> {
    if target.releases_lease {
        let message = "descriptor: expected no lease; its permits are released by the client that holds it";
        return Err(ApiError::BadRequest(message.to_owned()));
    }
    let reason = reason.map(|Reason(text)| text).unwrap_or_default();
    let note = api.parts.control.record_audit(&caller.name, action, &subject, &reason);
    Ok(limits::write(note).await?)
}

/// Sends the requests, and responds with the use of the limits after them.
async fn respond(
    api: &Api,
    domain: String,
    CounterTarget { rules, requests, .. }: CounterTarget,
) -> ApiResult {
    let readings = api.parts.counters.send(&requests).await;
    let held = api.parts.counters.held_hits(&requests);
    let mut limits = Vec::new();
    for (target, reading) in rules.into_iter().zip(readings) {
        // One that an override makes unlimited has none.
        if let (Some(verdict), Limit::Quota { quota, .. }) = (reading, target.rule.limit) {
            limits.push(LimitUsage::new(target, quota, &verdict?, held));
        }
    }
    if limits.is_empty() { Err(counter_not_found()) } else { response::json(&UsageView { domain, limits }) }
}
