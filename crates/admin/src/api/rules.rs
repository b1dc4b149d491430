//! `GET /rules`: the active rules and their hit counts on this instance.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate_limiter::metrics::{self, RuleTotal, RuleTotals};
use tollgate_rules::{Domain, Limit, Lists, Overridden, Rule, SwitchMode, limit_text};
use tollgate_shedding::{GateCounts, Priority, SheddingGate, SheddingState};

use super::extract::{QueryParams, now_ms, page_size};
use super::limits::{self, Lane};
use super::{Api, response::ApiResult};
use crate::caller::Caller;

const DEFAULT_RULES: usize = 1_000;
const MAX_RULES: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RulesQuery {
    domain: Option<String>,
    limit: Option<usize>,
}

/// One active rule.
#[derive(Debug, Serialize)]
struct RuleView {
    domain: String,
    rule: String,
    name: String,
    limit: String,
    requests_per_unit: Option<u64>,
    unit: Option<&'static str>,
    unit_multiplier: Option<u32>,
    algorithm: Option<&'static str>,
    shadow_mode: bool,
    quota_mode: bool,
    switch: Option<SwitchMode>,
    /// The override of the whole rule: its id, the limit in place of the rule's, and its end.
    #[serde(rename = "override")]
    by_override: Option<Value>,
    /// Number of overrides of single keys.
    key_overrides: usize,
    file: String,
    line: usize,
    #[serde(flatten)]
    total: RuleTotal,
    shedding: Option<Value>,
}

/// State of a rule that sheds, and its counts on this instance.
fn shedding_view(gate: &SheddingGate) -> Value {
    let SheddingState { utilization, report_age, passed, rates, is_shared } = gate.state();
    let GateCounts { requested, shed } = gate.counts();
    let counts = requested.into_iter().zip(shed);
    let priorities = Priority::ALL.into_iter().zip(counts).map(|(priority, (hits, shed))| {
        let pass_rate = rates.of_priority(priority);
        json!({ "priority": priority.name(), "pass_rate": pass_rate, "hits": hits, "shed": shed })
    });
    json!({
        "utilization": utilization,
        "report_age_ms": report_age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        "passed": passed,
        "is_shared": is_shared,
        "priorities": priorities.collect::<Vec<_>>(),
    })
}

/// Lists the active rules, sorted by domain and path.
pub(super) async fn list(api: Api, caller: Caller, QueryParams(query): QueryParams<RulesQuery>) -> ApiResult {
    let limit = page_size(query.limit, DEFAULT_RULES, MAX_RULES)?;
    let permit = api.limits.large_response().await?;
    let (rules, lists) = (api.parts.rules.load_overridden(), api.parts.rules.lists());
    let make = move || {
        let (rules, overridden) = rules.unwrap_or_default();
        let is_shown = |name: &str| query.domain.as_deref().is_none_or(|shown| shown == name);
        let all = rules.rules_of_domains().filter(|(domain, _)| is_shown(&domain.name));
        let all = all.map(|(domain, rule)| RuleOfDomain { domain, path: rule.path(), rule });
        let mut found: Vec<_> = all.collect();
        found.sort_by(|a, b| (&a.domain.name, &a.path).cmp(&(&b.domain.name, &b.path)));
        let is_truncated = found.len() > limit;
        let totals = metrics::rule_totals();
        let found = found.into_iter().take(limit);
        let rules: Vec<_> = found.map(|rule| rule.view(&lists, &overridden, &totals)).collect();
        json!({ "rules": rules, "is_truncated": is_truncated })
    };
    limits::large(&api, Lane::Read(&caller), permit, make).await
}

/// An active rule with its domain and path.
struct RuleOfDomain<'r> {
    domain: &'r Domain,
    path: String,
    rule: &'r Rule,
}

impl RuleOfDomain<'_> {
    fn view(self, lists: &Lists, overridden: &Overridden, totals: &RuleTotals) -> RuleView {
        let Self { domain, path, rule } = self;
        let (file, line) = &rule.origin;
        let quota = match rule.limit {
            Limit::Unlimited => None,
            Limit::Quota { quota, .. } => Some(quota),
        };
        RuleView {
            name: rule.name.to_string(),
            limit: limit_text(domain, rule),
            requests_per_unit: quota.map(|quota| quota.limit),
            unit: quota.map(|quota| quota.window.unit().name()),
            unit_multiplier: quota.map(|quota| quota.window.multiplier().get()),
            algorithm: rule.algorithm().map(|algorithm| algorithm.name()),
            shadow_mode: rule.shadow_mode,
            quota_mode: rule.quota_mode,
            switch: lists.mode_of(&domain.name, &path),
            by_override: overridden.whole(rule, now_ms()).map(|(stated, decider)| {
                let limit = limit_text(domain, decider);
                json!({ "id": stated.id.to_string(), "limit": limit, "expires_at_ms": stated.ends_at_ms })
            }),
            key_overrides: overridden.keys_of(rule),
            file: file.to_string(),
            line: *line,
            total: totals.of(&domain.name, &path),
            shedding: rule.shedding.as_ref().map(|shedding| shedding_view(shedding.gate())),
            domain: domain.name.to_string(),
            rule: path,
        }
    }
}
