//! Decides the calls of other regions about counters of this region.
//!
//! The own active rules decide, whatever the calling region has: a call names a counter, and is refused unless a rule with
//! `scope: primary` has it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tollgate_core::{ban::BanCheck, clock::now_ms, descriptor::Hits};
use tollgate_limiter::ActiveRules;
use tollgate_proto::tollgate::region::v1::{PrimaryCall, PrimaryReply, primary_reply::Result as Outcome};
use tollgate_rules::{Overridden, Rule, Rules, Scope};
use tollgate_store::request::{Check, Requests, TagRequest, Verdicts, push_check};
use tollgate_store::{Store, StoreError, key::CellKey};

use super::PrimaryRole;
use super::wire::{self, ReceivedCheck};
use crate::{Regions, RuleIndex, ScopedRules, metrics};

/// Maximum number of checks in a call.
const MAX_CHECKS: usize = 32;

/// Maximum number of permits that one call acquires.
const MAX_PERMITS: u64 = 100;

/// Longest time for a decision.
const MAX_TIMEOUT: Duration = Duration::from_secs(2);

/// Decides calls with the store of the own region.
#[derive(Clone, Debug)]
pub(crate) struct PrimaryServer {
    regions: Regions,
    rules: Arc<ActiveRules>,
    store: Store,
    primary: ScopedRules,
}

impl PrimaryServer {
    pub(crate) fn new(regions: Regions, rules: Arc<ActiveRules>, store: Store) -> Self {
        Self { regions, rules, store, primary: ScopedRules::new(Scope::Primary) }
    }

    /// A reply to each call of `peer`, in their order.
    pub(crate) async fn answer(&self, peer: &str, calls: &[PrimaryCall]) -> Vec<PrimaryReply> {
        let replies = join_all(calls.iter().map(|call| self.reply(peer, call))).await;
        replies.iter().for_each(|reply| metrics::answered(peer, reply.result()));
        replies
    }

    async fn reply(&self, peer: &str, call: &PrimaryCall) -> PrimaryReply {
        if !self.regions.admits_call(peer, Instant::now()) {
            return wire::refusal(Outcome::Busy, "");
        }
        if self.regions.calls.role() != PrimaryRole::Own {
            return wire::refusal(Outcome::Role, "");
        }
        let request = match self.request(call) {
            Ok(request) => request,
            Err(outcome) => return wire::refusal(outcome, ""),
        };
        let deadline = self.store.deadline(Some(Duration::from_micros(call.timeout_us).min(MAX_TIMEOUT)));
        let decided = self.store.decide(std::slice::from_ref(&request), deadline).await;
        let decided = decided.into_iter().next().unwrap_or(Err(StoreError::MalformedReply));
        match decided {
            Ok(verdicts) => wire::reply_of(&in_order(&request, verdicts)),
            Err(error) => {
                let outcome = if error.charged_nothing() { Outcome::NotCharged } else { Outcome::Unknown };
                wire::refusal(outcome, error.label())
            }
        }
    }

    /// The request of a call to the own store. The descriptor of each check is its position.
    fn request(&self, call: &PrimaryCall) -> Result<TagRequest, Outcome> {
        if call.checks.is_empty() || call.checks.len() > MAX_CHECKS {
            return Err(Outcome::Malformed);
        }
        let (rules, overridden) = self.rules.load_overridden().ok_or(Outcome::Rule)?;
        let index = self.primary.index(&rules);
        let mut requests = Requests::new();
        for (at, check) in call.checks.iter().enumerate() {
            let received = wire::read_check(check).ok_or(Outcome::Malformed)?;
            let (key, check) = check_of(&index, &rules, &overridden, &received)?;
            push_check(&mut requests, wire::read_charging(call), key, Check { descriptor: at, ..check });
        }
        let mut requests = requests.into_iter();
        match (requests.next(), requests.next()) {
            (Some(request), None) => Ok(request),
            // Of several hash tags.
            _ => Err(Outcome::Malformed),
        }
    }
}

/// The check of the own rule that has the counter.
fn check_of(
    index: &RuleIndex,
    rules: &Rules,
    overridden: &Overridden,
    received: &ReceivedCheck<'_>,
) -> Result<(CellKey, Check), Outcome> {
    let ReceivedCheck { cell, record, hits, veto, effect } = *received;
    let found = index.get(&record.path()).into_iter().flatten().find_map(|(domain, rule)| {
        let of = |has_own_key| {
            let key = CellKey::of_call(domain, cell, record, has_own_key)?;
            let decider = decider(rule, domain, &key, overridden);
            // An override may state another algorithm.
            let is_its_name =
                decider.algorithm().is_some_and(|algorithm| algorithm.has_own_key() == has_own_key);
            (is_its_name && decider.record_id() == record).then_some((key, decider, rules.domain(domain)?))
        };
        [false, true].into_iter().find_map(of)
    });
    let (key, rule, domain) = found.ok_or(Outcome::Rule)?;
    let policy = rule.policy().ok_or(Outcome::Rule)?;
    let is_bounded = match hits {
        Hits::Acquire { amount, .. } => policy.algorithm().holds_permits() && amount.get() <= MAX_PERMITS,
        // Hits that passed while this region was away, of its limit at most.
        Hits::Overdraw(amount) if !rule.overdraft => amount.get() <= policy.limit(),
        // Permits without a lease could not be released.
        Hits::Charge(amount) if policy.algorithm().holds_permits() => amount.get() > policy.limit(),
        _ => true,
    };
    if !is_bounded {
        return Err(Outcome::Malformed);
    }
    let ban = rule.ban.zip(effect).map(|(policy, effect)| BanCheck { policy, effect });
    let sync = domain.sync_of(&rule);
    Ok((key, Check { veto, ban, sync, ..Check::own(record, policy, hits) }))
}

/// The rule that decides on a counter in the place of `rule`, if an override is active for it.
fn decider(rule: &Arc<Rule>, domain: &str, cell: &CellKey, overridden: &Overridden) -> Arc<Rule> {
    // A hashed name has no key, so that only an override of the whole rule applies.
    let values = cell.open_values(domain).unwrap_or_default();
    Arc::clone(overridden.rule_of(rule, &rule.entries_with(&values), now_ms))
}

/// The verdicts in the order of the call's checks; the store returns them cell by cell.
fn in_order(request: &TagRequest, mut verdicts: Verdicts) -> Verdicts {
    debug_assert_eq!(request.checks().count(), verdicts.len(), "a verdict for each check");
    verdicts.sort_unstable_by_key(|(descriptor, _)| *descriptor);
    verdicts
}
