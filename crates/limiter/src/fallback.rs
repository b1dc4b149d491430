//! What decides when the store does not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;

use super::{
    Modes, Requests, Target, Targets,
    metrics::{self, RuleCounters},
    refund,
    replicas::Replicas,
};
use crate::verdict::Degraded;
use tollgate_core::{SyncMode, algorithm::Verdict, clock::Timestamp, descriptor::Hits};
use tollgate_rules::{Domain, OnStoreError, Rule};
use tollgate_store::{
    Decisions, MemoryStore, Store, StoreError,
    request::{Check, TagRequest, Verdicts, push_check},
};

/// After how long a client that was denied without a count may try again.
const DENIED_FOR: Duration = Duration::from_secs(1);

/// What decides when the store does not: a clone counts in the same store, and knows of the same replicas.
#[derive(Clone, Debug)]
pub struct Fallback {
    on_store_error: OnStoreError,
    local: MemoryStore,
    replicas: Replicas,
    /// Whether anything was ever counted here.
    was_used: Arc<AtomicBool>,
}

/// What stands in for the verdicts of a store that failed.
#[derive(Debug, Default)]
pub(super) struct StandIn {
    /// What counters are taken to say.
    pub(super) verdicts: SmallVec<[Verdicts; 1]>,
    /// What was asked of this instance's own store.
    asked: Requests,
    answered: Decisions,
    /// Why the request fails, if a limit wants it to.
    pub(super) failure: Option<StoreError>,
    pub(super) degraded: Option<Degraded>,
}

impl Fallback {
    /// One that does as `on_store_error` says for limits that don't say it themselves, and counts in `local` what this
    /// instance lets pass by itself: a share of each limit, one for each of the `replicas`.
    pub fn new(on_store_error: OnStoreError, local: MemoryStore, replicas: Replicas) -> Self {
        Self { on_store_error, local, replicas, was_used: Arc::default() }
    }

    /// Decides what those of `calls` ask that failed.
    pub(super) fn stand_in(
        &self,
        counters: &RuleCounters,
        domain: &Domain,
        modes: Modes,
        targets: &Targets<'_>,
        calls: &Requests,
        decisions: &Decisions,
    ) -> StandIn {
        let mut stand_in = StandIn::default();
        let replicas = self.replicas.known();
        metrics::degraded_request();
        for (call, decision) in calls.iter().zip(decisions) {
            let Err(error) = decision else { continue };
            for (cell, ask) in call.checks_with_cells() {
                let target = targets.get(ask.descriptor);
                let policy = target.and_then(|target| target.on_store_error(domain));
                let is_watched = modes.shadow || target.is_some_and(Target::is_watched);
                let policy = match policy.unwrap_or(self.on_store_error) {
                    // What denies nothing fails nothing.
                    OnStoreError::Error if is_watched => OnStoreError::Allow,
                    policy => policy,
                };
                metrics::degraded(policy, error.label());
                counters.degraded(domain, target.and_then(Target::counted), ask.hits);
                let reason = error.label();
                stand_in.degraded = stand_in.degraded.or(Some(Degraded { policy, reason }));
                match policy {
                    OnStoreError::Error => {
                        stand_in.failure = stand_in.failure.take().or_else(|| Some(error.clone()));
                    }
                    OnStoreError::Allow => {}
                    OnStoreError::Deny => stand_in.verdicts.push(Verdicts::from_iter([denied(ask)])),
                    OnStoreError::Local => {
                        let policy = ask.policy.shared_by(replicas);
                        let ask = Check { policy, sync: SyncMode::Strict, ..*ask };
                        push_check(&mut stand_in.asked, call.charging, cell.key.clone(), ask);
                    }
                }
            }
        }
        for call in &stand_in.asked {
            self.was_used.store(true, Ordering::Relaxed);
            let mut verdicts = self.local.decide(call);
            // As much of the whole limit as it is of the share.
            verdicts.iter_mut().for_each(|(_, verdict)| {
                verdict.used = verdict.used.saturating_mul(u64::from(replicas.get()));
            });
            stand_in.verdicts.push(verdicts.clone());
            stand_in.answered.push(Ok(verdicts));
        }
        stand_in
    }

    /// Gives up the places here that were given back in the store: they may have been taken while it failed.
    pub(super) fn release(&self, calls: &Requests, decisions: &Decisions) {
        if !self.was_used.load(Ordering::Relaxed) {
            return;
        }
        let decided = calls.iter().zip(decisions).filter(|(_, decision)| decision.is_ok());
        let checks = decided.flat_map(|(call, _)| call.checks_with_cells());
        let given_back = |ask: &Check| matches!(ask.hits, Hits::Release(_)).then_some(ask.hits);
        let releases = refund::each_for_itself(checks, given_back);
        for call in &releases {
            self.local.decide(call);
        }
    }

    /// Takes back what this instance's own store was charged for a request that does not pass.
    pub(super) fn undo(&self, stand_in: &StandIn) {
        for call in &refund::undo(&stand_in.asked, &stand_in.answered) {
            self.local.decide(call);
        }
    }

    /// The store that this instance counts in by itself.
    pub(super) fn local(&self) -> Store {
        Store::Memory(self.local.clone())
    }
}

impl StandIn {
    /// Whether this instance's own store was asked for a descriptor: a refund was made there, of what was charged
    /// there, as far as anyone knows.
    pub(super) fn has_counted(&self, descriptor: usize) -> bool {
        self.asked.iter().flat_map(TagRequest::checks).any(|ask| ask.descriptor == descriptor)
    }

    /// What was asked of this instance's own store, if that took a place which is still held.
    pub(super) fn holding(&self) -> Option<&Requests> {
        refund::holds_lease(&self.asked, &self.answered).then_some(&self.asked)
    }
}

/// What is said of a counter where nothing passes. What gives back is none to deny.
fn denied(ask: &Check) -> (usize, Verdict) {
    let admitted = ask.hits.is_refund();
    let after = if admitted { Duration::ZERO } else { DENIED_FOR };
    let verdict = Verdict {
        admitted,
        remaining: 0,
        reset_after: after,
        retry_after: after,
        used: 0,
        over: if admitted { 0 } else { ask.hits.charged() },
        decided_at: Timestamp::from_micros(0),
    };
    (ask.descriptor, verdict)
}

impl Target<'_> {
    /// Whether its limit is only watched.
    fn is_watched(&self) -> bool {
        match self {
            Self::Rule { is_watched, .. } => *is_watched,
            Self::Brought { rule, .. } => rule.is_some_and(|rule| rule.shadow_mode),
            Self::Nothing | Self::Unlimited(_) | Self::Off { .. } | Self::Denied => false,
        }
    }

    /// The rule that it is counted under, if there is one.
    fn counted(&self) -> Option<&Rule> {
        match self {
            Self::Rule { rule, .. } => Some(rule),
            Self::Brought { .. } | Self::Nothing | Self::Unlimited(_) | Self::Off { .. } | Self::Denied => {
                None
            }
        }
    }

    /// How its counter is decided when the store does not, where the configuration says.
    fn on_store_error(&self, domain: &Domain) -> Option<OnStoreError> {
        match self {
            Self::Rule { rule, .. } | Self::Brought { rule: Some(rule), .. } => rule.on_store_error,
            Self::Brought { rule: None, .. } => domain.default_on_store_error,
            Self::Nothing | Self::Unlimited(_) | Self::Off { .. } | Self::Denied => None,
        }
    }
}
