//! Calls to the store that charge the limits of a plan, and the precheck before them.

#[cfg(test)]
mod tests;

use std::{ptr, sync::Arc};

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::algorithm::{Algorithm, Charging, Policy};
use tollgate_core::ban::{BanCheck, BanEffect, BanMode};
use tollgate_core::descriptor::{Entry, Hits};
use tollgate_core::{RecordId, SyncMode, clock::Clock, lease::LeaseId};
use tollgate_rules::{Domain, Limit, Rule, Scope};
use tollgate_store::request::{Check, Requests, TagRequest, Verdicts, Veto, push_check};
use tollgate_store::{Decisions, Store, key::CellKey};

use crate::plan::{CounterMatch, Match, Plan, PlannedLimit};
use crate::{Modes, OwnShares, candidates::marked, leases};

/// Maximum number of permits that one request acquires: Redis takes about 2 µs for each, and decides the requests of others
/// in the same command.
const MAX_REQUEST_PERMITS: u64 = 100;

/// Terms under which the limits of a request are charged.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChargeTerms<'a> {
    pub(super) modes: Modes,
    /// Shares to which the counters of global rules are limited.
    pub(super) shares: &'a OwnShares,
    pub(super) clock: &'a Clock,
    /// Lease under which permits are acquired.
    pub(super) lease: Option<LeaseId>,
}

/// Adds the calls that charge the limits of a plan.
pub(super) fn add(plan: &mut Plan<'_, '_>, terms: &ChargeTerms<'_>) {
    let charging = charging(plan, terms.lease);
    let Plan { domain, limits, calls, .. } = plan;
    let (mut has_quotas, mut permits_left, mut call_of_rule) = (false, MAX_REQUEST_PERMITS, None);
    for (at, limit) in limits.iter_mut().enumerate() {
        call_of_rule = call_of_rule.filter(|_| limit.is_extra);
        let Some((key, record)) = counter_of(domain, limit, terms) else { continue };
        let Some(counter) = limit.matched.counter() else { continue };
        // The rule's sync mode does not apply to a limit override, and neither do its bans.
        let (policy, rule) = (counter.policy, limit.matched.rule());
        // Logs and permits are not lent, nor what the primary region decides.
        let share = counter.share.filter(|_| policy.can_be_lent() && !key.is_at_primary());
        let hits = leases::under_lease(calls, &key, record, counter, terms.lease);
        // Counts in full, beyond the limit too. A limit override has the mode of its rule.
        let hits = match (hits, limit.matched.stated_rule()) {
            (Hits::Charge(amount), Some(rule)) if rule.overdraft => Hits::Overdraw(amount),
            _ => hits,
        };
        let hits = bounded(hits, &policy, &mut permits_left);
        let veto = veto_or_counted(domain, &limit.matched, terms.modes, share.is_some());
        has_quotas |= veto == Veto::WithQuotas;
        let sync = match charging {
            Charging::Independent => rule.map_or(SyncMode::Strict, |rule| domain.sync_of(rule)),
            Charging::AllOrNone => SyncMode::Strict,
        };
        let ban = rule.and_then(|rule| ban_check(rule, limit.matched.is_shadow(), terms.modes));
        let check = Check { descriptor: at, record, policy, hits, veto, sync, ban, share };
        if charging == Charging::AllOrNone {
            push_check(calls, charging, key, check);
        } else if limit.matched.is_of_several() {
            push_to_rule(calls, &mut call_of_rule, key, check);
        } else {
            push_check(calls, charging, key, check);
            // Not where requests are charged all or none: what a candidate is charged would depend on the other limits.
            push_candidate(calls, domain, limit, at);
        }
    }
    if has_quotas {
        settle_quotas(plan);
    }
}

/// Makes peeks at limits of 0 charges, which such limits deny and do not count.
pub(super) fn deny_peeks_at_zero(Plan { limits, calls, .. }: &mut Plan<'_, '_>) {
    for check in calls.iter_mut().flat_map(|call| &mut call.cells).flat_map(|cell| &mut cell.checks) {
        let limit = limits.get(check.descriptor);
        if check.hits == Hits::Peek && limit.is_some_and(|limit| limit.matched.peeks_at_zero()) {
            check.hits = Hits::ONE;
        }
    }
}

/// Charging of the request: all or none where it reserves hits, so that a denied request holds none.
fn charging(plan: &Plan<'_, '_>, lease: Option<LeaseId>) -> Charging {
    if lease.is_some() && plan.has(Match::reserves) { Charging::AllOrNone } else { plan.domain.charging }
}

/// The cell and the record of a limit's counter, if it has one. Limits that of a global rule to the own region's share.
fn counter_of(
    domain: &Domain,
    limit: &mut PlannedLimit<'_, '_>,
    terms: &ChargeTerms<'_>,
) -> Option<(CellKey, RecordId)> {
    let entries = limit.counted_entries();
    match &mut limit.matched {
        Match::Rule { rule, counter, .. } => {
            let (key, record) = (cell_of(domain, rule, entries), rule.record_id());
            terms.shares.apply(rule, counter, &key, record, terms.clock);
            Some((key, record))
        }
        Match::Override { rule, counter } => Some(cell_of_override(domain, *rule, entries, counter)),
        Match::None | Match::Unlimited(_) | Match::Off { .. } | Match::Denied | Match::Shedding { .. } => {
            None
        }
    }
}

/// Adds a check to the call of its descriptor, which has several limits. `at` is the index of that call, if there is one.
fn push_to_rule(calls: &mut Requests, at: &mut Option<usize>, key: CellKey, check: Check) {
    match at.and_then(|at| calls.get_mut(at)) {
        Some(call) => call.push(key, check),
        None => {
            *at = Some(calls.len());
            calls.push(TagRequest::of_rule(key, check));
        }
    }
}

/// The effect of a denial: a quota denies only together with all others, a limit in shadow mode never. If every limit
/// is a quota, a request that they deny has no other charges.
fn veto(matched: &Match<'_>, modes: Modes) -> Veto {
    match matched {
        _ if modes.shadow || modes.quota || matched.is_shadow() => Veto::Never,
        Match::Rule { rule, .. } if rule.quota_mode => Veto::WithQuotas,
        _ => Veto::Alone,
    }
}

/// The effect of a denial in a domain that may count denied requests in the limits alone that deny.
fn veto_or_counted(domain: &Domain, matched: &Match<'_>, modes: Modes, is_lent: bool) -> Veto {
    match veto(matched, modes) {
        // Several limits of a descriptor are charged all or none, and loans would come too late for hits that count.
        Veto::Alone if domain.counts_denied && !matched.is_of_several() && !is_lent => Veto::Counted,
        veto => veto,
    }
}

/// Corrects the vetoes of quotas that do not deny by themselves what they share a call with: because a quota of the
/// request is never exhausted, or because there are others in another call.
fn settle_quotas(plan: &mut Plan<'_, '_>) {
    let is_quota = |check: &Check| check.veto == Veto::WithQuotas;
    let is_endless = plan.has(Match::is_endless_quota);
    let calls = &mut plan.calls;
    let is_across_tags = calls.iter().filter(|call| call.checks().any(is_quota)).count() > 1;
    let veto = match (is_endless, is_across_tags) {
        (true, _) => Veto::Never,
        (false, true) => Veto::AcrossTags,
        (false, false) => return,
    };
    let checks = calls.iter_mut().flat_map(|call| &mut call.cells).flat_map(|cell| &mut cell.checks);
    checks.filter(|check| is_quota(check)).for_each(|check| check.veto = veto);
}

/// The ban that the decision on a rule's counter applies: only watched where the rule does not deny by itself.
fn ban_check(rule: &Rule, is_shadow: bool, modes: Modes) -> Option<BanCheck> {
    let policy = rule.ban?;
    let denies = policy.mode == BanMode::Enforce && !is_shadow && !modes.shadow && !modes.quota;
    let effect = if denies { BanEffect::Enforce } else { BanEffect::Watch };
    Some(BanCheck { policy, effect })
}

/// Replaces a charge of more permits than are left to the request by one above any limit, which is denied without work for
/// the store.
fn bounded(hits: Hits, policy: &Policy, permits_left: &mut u64) -> Hits {
    if !policy.algorithm().holds_permits() || hits.charged() == 0 {
        return hits;
    }
    match permits_left.checked_sub(hits.charged()) {
        Some(left) => {
            *permits_left = left;
            hits
        }
        None => Hits::charge(Hits::MAX),
    }
}

/// The cell of the rule's counter for these entries.
pub fn cell_of(domain: &Domain, rule: &Rule, entries: &[Entry<'_>]) -> CellKey {
    let mut shared = shared_cell(domain, rule, entries);
    if rule.scope == Scope::Primary {
        shared = shared.at_primary(&domain.name);
    }
    if rule.algorithm().is_some_and(Algorithm::has_own_key) {
        shared.dedicated(rule.record_id())
    } else {
        shared
    }
}

/// The cell of all counters that have the rule's open values of these entries.
fn shared_cell(domain: &Domain, rule: &Rule, entries: &[Entry<'_>]) -> CellKey {
    // Positions by the rule alone, so that the same values at other positions have another tag.
    let position = |key: &str| rule.segments.iter().position(|segment| segment.distinguishes(key));
    let tag: SmallVec<[usize; 4]> = domain.hash_tag.iter().filter_map(|key| position(key)).collect();
    let mut open = rule.open(entries).peekable();
    if tag.is_empty() {
        return match open.peek() {
            None => CellKey::global(&domain.name, rule.cell_id()),
            Some(_) => CellKey::open(&domain.name, open.map(|(_, entry)| entry)),
        };
    }
    let mut beyond = open.filter(|(at, _)| !tag.contains(at)).map(|(_, entry)| entry).peekable();
    let cell = CellKey::open(&domain.name, tag.iter().filter_map(|at| entries.get(*at).copied()));
    match beyond.peek() {
        None => cell,
        Some(_) => cell.with_entries(beyond),
    }
}

/// The counter of a limit override.
///
/// As in envoyproxy/ratelimit it is the rule's own counter if the window is the same, so that usage is shared; with
/// another window it is a separate counter. If no rule matches, or the rule's counter is shared by many values, it
/// belongs to the values of the descriptor. Permits always belong to the rule: the release need not repeat the
/// override. A region enforces an override of a rule of the primary region by itself.
fn cell_of_override(
    domain: &Domain,
    rule: Option<&Arc<Rule>>,
    entries: &[Entry<'_>],
    counter: &CounterMatch,
) -> (CellKey, RecordId) {
    let algorithm = counter.policy.algorithm();
    let window = counter.quota.window;
    let seconds = window.seconds();
    match rule {
        Some(rule) if algorithm.takes_leases() => (cell_of(domain, rule, entries), rule.record_id()),
        Some(rule) if !rule.shares_values(entries) => match &rule.limit {
            Limit::Quota { quota, .. }
                if quota.window.coincides_with(window) && rule.scope != Scope::Primary =>
            {
                (cell_of(domain, rule, entries), rule.record_id())
            }
            Limit::Quota { .. } | Limit::Unlimited => {
                let cell = shared_cell(domain, rule, entries);
                (cell.limit_override(Some(rule.record_id()), algorithm, seconds), RecordId::alone(algorithm))
            }
        },
        Some(_) | None => {
            let cell = CellKey::open(&domain.name, entries.iter().copied());
            (cell.limit_override(None, algorithm, seconds), RecordId::alone(algorithm))
        }
    }
}

/// Adds the check of the candidate of a limit's rule to the calls, if it has one.
fn push_candidate(calls: &mut Requests, domain: &Domain, limit: &PlannedLimit<'_, '_>, at: usize) {
    let Match::Rule { rule, counter, .. } = &limit.matched else { return };
    let Some(candidate) = &rule.rollout.candidate else { return };
    let hits = match counter.hits {
        // A read charges neither.
        Hits::Peek
        | Hits::Release(_)
        | Hits::Settle { .. }
        | Hits::Acquire { .. }
        | Hits::RefundCharge { .. } => return,
        Hits::Charge(amount) | Hits::Overdraw(amount) if candidate.overdraft => Hits::Overdraw(amount),
        Hits::Charge(amount) | Hits::Overdraw(amount) => Hits::Charge(amount),
        Hits::Refund(amount) => Hits::Refund(amount),
    };
    // Its counter has the hash tag of the rule's.
    let mut key = shared_cell(domain, rule, limit.counted_entries());
    if candidate.policy.algorithm().has_own_key() {
        key = key.dedicated(candidate.record);
    }
    let check = Check { descriptor: marked(at), ..Check::own(candidate.record, candidate.policy, hits) };
    push_check(calls, Charging::Independent, key, check);
}

/// Decides calls until `deadline`. Leaves in `calls` the requests that were made, in the order of the decisions.
pub(super) async fn decide(store: &Store, calls: &mut Requests, deadline: Option<Instant>) -> Decisions {
    if !needs_precheck(calls) {
        return store.decide(calls, deadline).await;
    }
    // Boxed, so that the future of the common case stays small.
    Box::pin(precheck(store, calls, deadline)).await
}

/// Reads all hash tags before charging, where a refund would not fully undo a charge.
///
/// A bucket that refills cannot be refunded exactly: tokens that were refilled since the charge may have been meant for
/// other requests. If requests span tags and one tag is exhausted, repeated charges and refunds would drain a bucket in
/// another tag by requests that never pass. So all tags are read first, and charged only if the request would pass:
/// no limit denies it, and not all of its quotas do, wherever they are. The precheck costs a round trip, which a hash tag
/// shared by the limits saves.
async fn precheck(store: &Store, calls: &mut Requests, deadline: Option<Instant>) -> Decisions {
    let prechecks: Requests = calls.iter().map(TagRequest::precheck).collect();
    let prechecked = store.decide(&prechecks, deadline).await;
    if !is_denied(calls, &prechecked) {
        return store.decide(calls, deadline).await;
    }
    // Reads, as which their prechecks count, except for charges beyond the limit.
    let checks = calls.iter_mut().flat_map(|call| &mut call.cells).flat_map(|cell| &mut cell.checks);
    checks.filter(|check| !check.hits.is_overdraft()).for_each(|check| check.hits = Hits::Peek);
    if calls.iter().any(has_overdraft) {
        charge_overdrafts(store, calls, prechecked, deadline).await
    } else {
        prechecked
    }
}

/// Makes the charges beyond the limit of a denied request, which no denial withholds. Returns the decisions on these, and
/// of the precheck on the other checks.
async fn charge_overdrafts(
    store: &Store,
    calls: &Requests,
    prechecked: Decisions,
    deadline: Option<Instant>,
) -> Decisions {
    let charged = store.decide(calls, deadline).await;
    let decisions = calls.iter().zip(prechecked).zip(charged);
    let merge = |((call, prechecked), charged): ((&TagRequest, _), _)| match (prechecked, charged) {
        (prechecked, _) if !has_overdraft(call) => prechecked,
        (Ok(prechecked), Ok(charged)) => {
            let verdicts = call.checks().zip::<Verdicts>(prechecked).zip::<Verdicts>(charged);
            let verdicts = verdicts.map(
                |((check, prechecked), charged)| {
                    if check.hits.is_overdraft() { charged } else { prechecked }
                },
            );
            Ok(verdicts.collect())
        }
        (_, charged) => charged,
    };
    decisions.map(merge).collect()
}

fn has_overdraft(call: &TagRequest) -> bool {
    call.checks().any(|check| check.hits.is_overdraft())
}

/// Whether a request with these calls is denied, given the decisions of their prechecks. A check without a decision may
/// pass.
fn is_denied(calls: &Requests, prechecked: &Decisions) -> bool {
    let outcomes = calls.iter().zip(prechecked).flat_map(|(call, prechecked)| {
        call.checks().enumerate().map(move |(at, check)| {
            let verdict = prechecked.as_ref().ok().and_then(|verdicts| verdicts.get(at));
            (check.effective_veto(), verdict.is_none_or(|(_, verdict)| verdict.admitted))
        })
    });
    Veto::is_any(outcomes.map(|(veto, passes)| match veto {
        Veto::AcrossTags => (Veto::WithQuotas, passes),
        veto => (veto, passes),
    }))
}

/// Whether a bucket is charged all or none with a counter of another tag that may deny. A refund is made exactly once
/// whether or not the request passes, so a request with one has no precheck.
fn needs_precheck(calls: &Requests) -> bool {
    if calls.len() < 2 || calls.iter().flat_map(TagRequest::checks).any(|check| check.hits.is_refund()) {
        return false;
    }
    let is_bucket =
        |check: &Check| check.policy.algorithm() == Algorithm::TokenBucket && check.hits.charged() > 0;
    let may_deny = |call: &TagRequest| call.checks().any(|check| check.veto != Veto::Never);
    calls
        .iter()
        .filter(|call| call.charging_across_calls() == Charging::AllOrNone && call.checks().any(is_bucket))
        .any(|call| calls.iter().any(|other| !ptr::eq(call, other) && may_deny(other)))
}
