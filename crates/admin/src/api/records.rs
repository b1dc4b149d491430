//! `/records`: what operators change while traffic flows, and the automatic entries of the deny list. A record is put and
//! removed by its key, on the condition that it is still the one on which the change is based.

use std::collections::{HashMap, HashSet};
use std::{future::ready, sync::Arc};

use axum::{http::StatusCode, response::IntoResponse as _};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate_control::{
    AutomaticEntry, AutomaticMode, BanRemoval, List, ListEntry, ListPair, OverrideEntry, Pair, Ramp,
    RampPlan, Record, RecordKey, RecordKind, RecordSelection, Switch, SwitchMode, check_entry, check_switch,
};
use tollgate_core::EnforcedShare;
use tollgate_rules::{ALL_NAMES, Overridden, RuleOverrides, Rules};

use super::extract::{Integer, JsonBody, PathParam, QueryParams, Reason, expires_at, now_ms, page_size};
use super::guardrails::{MAX_VIOLATIONS, violations_of_entries, violations_of_overrides};
use super::limits::{self, Lane};
use super::response::{self, ApiError, ApiResult, Violation};
use super::{Api, bans};
use crate::caller::Caller;

const DEFAULT_RECORDS: usize = 1_000;
const MAX_RECORDS: usize = 10_000;

/// Maximum number of records of one change.
const MAX_BATCH: usize = 1_000;

/// Lifetime of an exemption that states none: 7 days.
const EXEMPTION_S: u64 = 7 * 86_400;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordsQuery {
    kind: Option<RecordKind>,
    domain: Option<String>,
    rule: Option<String>,
    search: Option<String>,
    /// The key after which they follow.
    after: Option<RecordKey>,
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PutRequest {
    records: Vec<Stated>,
    reason: Reason,
    #[serde(default)]
    force: bool,
    #[serde(default)]
    dry_run: bool,
}

/// A record as an operator states it.
#[derive(Debug, Deserialize)]
struct Stated {
    #[serde(flatten)]
    kind: StatedKind,
    expires_in_s: Option<Integer>,
    /// The revision of the record that the change replaces; `0` for none.
    base: Option<Integer>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum StatedKind {
    /// A limit over a rule or a key.
    Override {
        domain: String,
        rule: String,
        #[serde(default)]
        descriptor: Vec<Pair>,
        rate_limit: Map<String, Value>,
    },
    ListEntry {
        list: List,
        domain: String,
        descriptor: Vec<ListPair>,
    },
    Switch {
        domain: String,
        rule: String,
        mode: SwitchMode,
        enforce_percent: Option<EnforcedShare>,
        ramp: Option<StatedRamp>,
    },
}

/// Gradual increase of the share of the keys for which a rule is enforced, in steps of equal length.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedRamp {
    steps: Vec<f64>,
    over_s: Integer,
    max_denied_percent: f64,
    min_hits: Option<Integer>,
}

/// Hits of enforced keys without which a step is not judged, unless a ramp states another number.
const DEFAULT_MIN_HITS: u64 = 100;

impl StatedRamp {
    /// The ramp from now on; a rollback sets the share `back_to`.
    fn begin(self, back_to: EnforcedShare, now_ms: u64) -> Result<Ramp, ApiError> {
        let share = |percent: f64| {
            let share = EnforcedShare::from_percent(percent);
            share.map_err(|error| ApiError::BadRequest(format!("ramp: {percent}: {error}")))
        };
        let steps: Vec<_> = self.steps.into_iter().map(share).collect::<Result<_, _>>()?;
        let plan = RampPlan {
            step_ms: self.over_s.0.saturating_mul(1_000).checked_div(steps.len() as u64).unwrap_or_default(),
            steps,
            max_denied_percent: share(self.max_denied_percent)?,
            min_hits: self.min_hits.map_or(DEFAULT_MIN_HITS, |hits| hits.0.max(1)),
            back_to_percent: back_to,
        };
        Ok(Ramp::begin(plan, now_ms))
    }
}

impl Stated {
    /// The record that a caller makes now, and its base.
    fn record(self, api: &Api, caller: &Caller, reason: &str) -> Result<(Record, Option<u64>), ApiError> {
        let created_at_ms = now_ms();
        let expires_at_ms = expires_at(created_at_ms, self.expires_in_s)?;
        let (reason, author) = (reason.to_owned(), caller.name.to_string());
        let record = match self.kind {
            StatedKind::Override { domain, rule, descriptor, rate_limit } => {
                Record::Override(OverrideEntry {
                    domain,
                    rule,
                    descriptor,
                    rate_limit,
                    reason,
                    author,
                    created_at_ms,
                    expires_at_ms,
                })
            }
            StatedKind::ListEntry { list, domain, descriptor } => Record::ListEntry(ListEntry {
                list,
                domain,
                descriptor,
                reason,
                author,
                created_at_ms,
                expires_at_ms,
            }),
            StatedKind::Switch { domain, rule, mode, enforce_percent, ramp } => {
                let before = || api.parts.rules.lists().share_of(&domain, &rule);
                let back_to = || enforce_percent.or_else(before).unwrap_or(EnforcedShare::NONE);
                let ramp = ramp.map(|ramp| ramp.begin(back_to(), created_at_ms)).transpose()?;
                let enforce_percent = ramp.as_ref().map(Ramp::share).or(enforce_percent);
                Record::Switch(Switch {
                    domain,
                    rule,
                    mode,
                    enforce_percent,
                    ramp,
                    reason,
                    author,
                    created_at_ms,
                    expires_at_ms,
                })
            }
        };
        Ok((record, self.base.map(|base| base.0)))
    }
}

/// Reasons why overrides have no effect, by their keys.
fn problems(api: &Api) -> HashMap<String, String> {
    let active = api.parts.rules.load_overridden();
    let unmatched = active.iter().flat_map(|(_, overridden)| &overridden.unmatched);
    unmatched.map(|found| (found.id.to_string(), found.reason.to_string())).collect()
}

/// Lists records, in the order of their keys.
pub(super) async fn list(api: Api, caller: Caller, query: QueryParams<RecordsQuery>) -> ApiResult {
    let QueryParams(RecordsQuery { kind, domain, rule, search, after, limit }) = query;
    let limit = page_size(limit, DEFAULT_RECORDS, MAX_RECORDS)?;
    limits::read(ready(api.parts.control.require_loaded())).await?;
    let permit = api.limits.large_response().await?;
    let selection = RecordSelection { kind, domain, rule, search, after, limit };
    let shared = api.clone();
    let make = move || {
        let mut page = shared.parts.control.records(&selection);
        let mut problems = problems(&shared);
        for view in &mut page.records {
            view.problem = problems.remove(&view.key.to_string());
        }
        let active = shared.parts.rules.load_overridden();
        let unmatched = active.map_or(0, |(_, overridden)| overridden.counts.unmatched);
        let mut counts: Map<String, Value> =
            page.counts.into_iter().map(|(kind, count)| (kind.name().to_owned(), count.into())).collect();
        counts.insert("unmatched".to_owned(), unmatched.into());
        json!({
            "revision": page.revision,
            "records": page.records,
            "is_truncated": page.is_truncated,
            "counts": counts,
        })
    };
    limits::large(&api, Lane::Read(&caller), permit, make).await
}

fn unknown() -> ApiError {
    ApiError::NotFound("no record has this key".to_owned())
}

/// Returns a record.
pub(super) async fn show(api: Api, PathParam(key): PathParam<RecordKey>) -> ApiResult {
    let mut view = limits::read(api.parts.control.record(key)).await?.ok_or_else(unknown)?;
    view.problem = problems(&api).remove(&key.to_string());
    response::json(&view)
}

/// Puts records, each in the place of an earlier one with its key.
pub(super) async fn put(api: Api, caller: Caller, body: JsonBody<PutRequest>) -> ApiResult {
    let JsonBody(PutRequest { records, reason, force, dry_run }, _permit) = body;
    if !(1..=MAX_BATCH).contains(&records.len()) {
        return Err(ApiError::BadRequest(format!("{} records; expected 1 to {MAX_BATCH}", records.len())));
    }
    let stated = records.into_iter().map(|stated| stated.record(&api, &caller, &reason.0));
    let stated: Vec<(Record, Option<u64>)> = stated.collect::<Result<_, ApiError>>()?;
    let (shared, records) =
        (api.clone(), stated.iter().map(|(record, _)| record.clone()).collect::<Vec<_>>());
    let violations = api.limits.scan(Lane::Write, move || check(&shared, &records)).await??;
    if !force && !dry_run {
        response::require_force(violations.clone())?;
    }
    let control = &api.parts.control;
    let views = match dry_run {
        true => limits::write(control.check_put(stated)).await?,
        false => limits::write(control.put_records(stated)).await?,
    };
    let revision = views.iter().map(|view| view.revision).max();
    response::json(&json!({ "revision": revision, "records": views, "violations": violations }))
}

/// The active rules, with the paths of each domain that was examined, and those of its descriptors, which may have several
/// limits.
struct KnownRules<'r> {
    rules: &'r Rules,
    paths: HashMap<&'r str, [HashSet<String>; 2]>,
}

impl<'r> KnownRules<'r> {
    /// Checks that a rule is active; also the limits of a descriptor as one, if it `may_have_several`.
    fn require(&mut self, domain: &'r str, path: &str, may_have_several: bool) -> Result<(), ApiError> {
        let rules = || self.rules.domain(domain).into_iter().flat_map(|domain| domain.root.rules());
        let paths = || {
            [rules().map(|rule| rule.path()).collect(), rules().map(|rule| rule.descriptor_path()).collect()]
        };
        let [rules, descriptors] = self.paths.entry(domain).or_insert_with(paths);
        if rules.contains(path) || may_have_several && descriptors.contains(path) {
            return Ok(());
        }
        Err(ApiError::NotFound(format!("no active rule of the domain {domain} has the path {path}")))
    }

    fn require_domain(&self, domain: &str) -> Result<(), ApiError> {
        match domain == ALL_NAMES || self.rules.domain(domain).is_some() {
            true => Ok(()),
            false => Err(ApiError::NotFound(format!("no active domain is {domain}"))),
        }
    }
}

/// Checks that records are valid and have an effect on the active rules; returns the guardrails that they violate. Slow.
fn check(api: &Api, records: &[Record]) -> Result<Vec<Violation>, ApiError> {
    let rules = api.parts.rules.load().unwrap_or_default();
    let mut known = KnownRules { rules: &rules, paths: HashMap::new() };
    let (mut keys, mut overrides, mut listings) = (HashSet::new(), Vec::new(), Vec::new());
    for record in records {
        let invalid = |error: String| rejected(records, record, &error);
        if !keys.insert(record.key()) {
            return Err(invalid("stated twice; expected one record for each key".to_owned()));
        }
        match record {
            Record::Override(entry) => {
                known.require(&entry.domain, &entry.rule, false)?;
                overrides.push(Arc::new(entry.compiled().map_err(invalid)?));
            }
            Record::ListEntry(entry) => {
                listings.push(check_entry(entry).map_err(|error| invalid(error.to_string()))?);
            }
            Record::Switch(switch) => {
                check_switch(switch).map_err(invalid)?;
                match switch.mode {
                    SwitchMode::Emergency => known.require_domain(&switch.domain)?,
                    _ => known.require(&switch.domain, &switch.rule, true)?,
                }
            }
            Record::Automatic(_) => {
                return Err(ApiError::BadRequest("only the system makes these".to_owned()));
            }
        }
    }
    let overrides = RuleOverrides { revision: 0, all: overrides.into() };
    let overridden = Overridden::new(&rules, &overrides, now_ms());
    if let Some(first) = overridden.unmatched.first() {
        let id = first.id.to_string();
        let record = records.iter().find(|record| record.key().to_string() == id);
        return Err(record.map_or(ApiError::Internal, |record| rejected(records, record, &first.reason)));
    }
    let of_overrides = violations_of_overrides(&rules, &overridden, &overrides, now_ms());
    Ok(violations_of_entries(listings).chain(of_overrides).take(MAX_VIOLATIONS).collect())
}

/// The error of a record, which is named if there are others.
fn rejected(records: &[Record], record: &Record, reason: &str) -> ApiError {
    let name = if records.len() == 1 { String::new() } else { format!("{}: ", record.subject()) };
    ApiError::InvalidLimit(name + reason)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RemovalQuery {
    base: Option<u64>,
    #[serde(default)]
    dry_run: bool,
}

/// Removes a record; with an automatic entry, its ban too.
pub(super) async fn remove(
    api: Api,
    caller: Caller,
    PathParam(key): PathParam<RecordKey>,
    QueryParams(RemovalQuery { base, dry_run }): QueryParams<RemovalQuery>,
) -> ApiResult {
    let control = &api.parts.control;
    // What can be removed, before a ban is ended for it.
    let found = limits::read(control.remove_record(key, base, &caller.name, true)).await?;
    let record = found.ok_or_else(unknown)?;
    if !dry_run {
        if let Record::Automatic(entry) = &record {
            end_ban_of(&api, &caller, entry).await?;
        }
        let removed = limits::write(control.remove_record(key, base, &caller.name, false)).await?;
        removed.ok_or_else(unknown)?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Ends the ban for which a client was listed, which would deny it still.
async fn end_ban_of(api: &Api, caller: &Caller, entry: &AutomaticEntry) -> Result<(), ApiError> {
    match entry.mode {
        AutomaticMode::Enforce => bans::end(api, caller, &entry.ban(), BanRemoval::Forgive).await,
        AutomaticMode::Exempt => Ok(()),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExemptRequest {
    reason: Reason,
    expires_in_s: Option<Integer>,
}

/// Removes an automatic entry with its ban, and exempts the client from another entry for some time.
pub(super) async fn exempt(
    api: Api,
    caller: Caller,
    PathParam(key): PathParam<RecordKey>,
    JsonBody(request, _permit): JsonBody<ExemptRequest>,
) -> ApiResult {
    let lifetime = request.expires_in_s.or(Some(Integer(EXEMPTION_S)));
    let end = expires_at(now_ms(), lifetime)?.unwrap_or_default();
    let control = &api.parts.control;
    let unknown = || ApiError::NotFound("no automatic entry has this key".to_owned());
    let found = limits::read(control.stored_record(key)).await?.map(|found| found.record);
    let Some(Record::Automatic(entry)) = found else { return Err(unknown()) };
    end_ban_of(&api, &caller, &entry).await?;
    let exempted = control.exempt_automatic(entry, &caller.name, &request.reason.0, end);
    response::json(&limits::write(exempted).await?.ok_or_else(unknown)?)
}
