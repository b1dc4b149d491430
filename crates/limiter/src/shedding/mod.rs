//! Rules that shed by the utilization of the service behind them.
//!
//! A request compares a random number with a snapshot of its rule's pass rates. [`share_utilization`] runs twice a second
//! beside the requests: it adds the reports up with those of the other instances, and sets the rates.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};
use std::{collections::HashMap, time::Duration};

use futures_util::future::join_all;
use tokio::time::{MissedTickBehavior, interval};
use tollgate_core::clock::Clock;
use tollgate_rules::{Rule, Rules};
use tollgate_shedding::SheddingInstance;
use tollgate_store::{Store, key::CellKey};

use crate::metrics::{ShownRule, show_shedding};
use crate::plan::{Match, PlannedLimits, Signal};
use crate::{ActiveRules, Modes};

/// Retry times of requests that were shed, in seconds; at random, so that they do not return together.
const RETRY_AFTER_S: std::ops::RangeInclusive<u64> = 1..=5;

/// Takes reports, and decides requests by their rules' gates. Returns the time to retry if the request is shed: then
/// nothing else of it is charged.
pub(super) fn apply(modes: Modes, limits: &mut PlannedLimits<'_, '_>) -> Option<Duration> {
    let mut is_denied = false;
    for limit in &mut *limits {
        let Match::Shedding { rule, signal, is_shadow } = &mut limit.matched else { continue };
        let Some(shedding) = &rule.shedding else { continue };
        match signal {
            Signal::Report(utilization) => utilization.iter().for_each(|one| shedding.gate().report(*one)),
            Signal::Request { priority, is_shed } => {
                let hits = limit.hits.charged();
                *is_shed = hits > 0 && !shedding.gate().admit(*priority, hits, || fastrand::u16(..));
                is_denied |= *is_shed && !*is_shadow && !modes.shadow;
            }
        }
    }
    is_denied.then(|| {
        // The other descriptors skip their limits, unless they return what was charged before.
        for limit in limits {
            if !limit.is_refund() && !matches!(limit.matched, Match::Shedding { .. } | Match::Denied) {
                limit.matched = Match::None;
            }
        }
        Duration::from_secs(fastrand::u64(RETRY_AFTER_S))
    })
}

/// Time between two intervals of reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// Time after which an instance decides by its own reports.
const SHARE_TIMEOUT: Duration = Duration::from_millis(250);

/// A rule that sheds, with this instance's part in it.
#[derive(Debug)]
struct SheddingRule {
    domain: Box<str>,
    path: String,
    rule: Arc<Rule>,
    key: CellKey,
    instance: SheddingInstance,
}

/// Sets the pass rates of all rules that shed, until the rules are dropped. To be run once in a process: of Redis it uses
/// the connections of `store`.
pub(crate) async fn share_utilization(active: Weak<ActiveRules>, store: Store, modes: Modes, clock: Clock) {
    let mut ticks = interval(REPORT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known: Option<Arc<Rules>> = None;
    let mut rules = Vec::new();
    loop {
        ticks.tick().await;
        let Some(active) = active.upgrade() else { return };
        let (loaded, lists) = (active.load(), active.lists());
        drop(active);
        let Some(loaded) = loaded else { continue };
        if known.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &loaded)) {
            rules = succeed(rules, &loaded);
            known = Some(loaded);
        }
        let ended = rules.iter_mut().map(|rule| {
            let switch = lists.mode_of(&rule.domain, &rule.path);
            let is_enforced = switch.is_none() && !rule.rule.shadow_mode && !modes.shadow;
            rule.end_interval(&store, is_enforced, &clock)
        });
        join_all(ended).await;
    }
}

/// The rules that shed in `loaded`, with the state that those of the same path had, and shows them.
fn succeed(former: Vec<SheddingRule>, loaded: &Rules) -> Vec<SheddingRule> {
    let former = former.into_iter().map(|rule| ((rule.domain, rule.path), rule.instance));
    let mut former: HashMap<(Box<str>, String), SheddingInstance> = former.collect();
    let mut rules = Vec::new();
    for domain in loaded.domains() {
        for (rule, _) in domain.shedding_rules() {
            let path = rule.path();
            let instance = former.remove(&(domain.name.clone(), path.clone())).unwrap_or_default();
            let key = CellKey::global(&domain.name, rule.record_id()).utilization();
            rules.push(SheddingRule {
                domain: domain.name.clone(),
                path,
                rule: Arc::clone(rule),
                key,
                instance,
            });
        }
    }
    let shown = rules.iter().filter_map(|rule| {
        let gate = Arc::clone(rule.rule.shedding.as_deref()?.gate());
        Some(ShownRule { domain: rule.domain.clone(), path: rule.path.as_str().into(), gate })
    });
    show_shedding(shown.collect());
    rules
}

impl SheddingRule {
    /// Ends an interval: shares its sums, and sets the rates.
    async fn end_interval(&mut self, store: &Store, is_enforced: bool, clock: &Clock) {
        let Self { rule, key, instance, .. } = self;
        let Some(shedding) = rule.shedding.as_deref() else { return };
        let (policy, gate) = (&shedding.policy, shedding.gate());
        if instance.forget_if_unused(gate) {
            return;
        }
        let sums = instance.end_interval(policy, gate, is_enforced, clock.now());
        // Sums that may have been added are not added again, so that none counts twice.
        let shared = store.counters.add_utilization(key, policy, &sums, SHARE_TIMEOUT).await;
        instance.apply(policy, gate, shared, clock.now());
    }
}
