//! Decisions while the store fails: each limit applies its `on_store_error` policy.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;
use tollgate_core::{SyncMode, algorithm::Verdict, clock::Timestamp, descriptor::Hits};
use tollgate_rules::{Domain, OnStoreError};
use tollgate_store::{
    Decisions, MemoryStore, Store, StoreError,
    request::{Check, TagRequest, Verdicts, push_check},
};

use super::{
    Match, Matches, Modes, Requests,
    metrics::{self, RuleCounters},
    refund,
    replicas::Replicas,
};
use crate::verdict::Degraded;

/// Retry time of a client that was denied without a count.
const DENIED_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Decides while the store fails. Clones share the local store and the number of replicas.
#[derive(Clone, Debug)]
pub struct Fallback {
    on_store_error: OnStoreError,
    local: MemoryStore,
    replicas: Replicas,
    /// Whether the local store ever counted anything.
    was_used: Arc<AtomicBool>,
}

/// Verdicts substituted for a failed store.
#[derive(Debug, Default)]
pub(super) struct FallbackVerdicts {
    /// Substituted verdicts of counters.
    pub(super) verdicts: SmallVec<[Verdicts; 1]>,
    /// Requests to the local store, and its decisions.
    local_requests: Requests,
    local_decisions: Decisions,
    /// The error of a request that a limit's policy makes fail.
    pub(super) failure: Option<StoreError>,
    pub(super) degraded: Option<Degraded>,
}

impl Fallback {
    /// Applies `on_store_error` to limits that state no policy, and counts in `local` the hits that this instance
    /// admits by itself: each of the `replicas` admits an equal share of a limit.
    pub fn new(on_store_error: OnStoreError, local: MemoryStore, replicas: Replicas) -> Self {
        Self { on_store_error, local, replicas, was_used: Arc::default() }
    }

    /// Decides those of `calls` that failed in `store`.
    pub(super) fn decide(
        &self,
        counters: &RuleCounters,
        domain: &Domain,
        modes: Modes,
        matches: &Matches<'_>,
        (store, calls, decisions): (&Store, &Requests, &Decisions),
    ) -> FallbackVerdicts {
        let mut substituted = FallbackVerdicts::default();
        let replicas = self.replicas.known();
        metrics::degraded_request();
        for (call, decision) in calls.iter().zip(decisions) {
            let Err(error) = decision else { continue };
            for (cell, check) in call.checks_with_cells() {
                let matched = matches.get(check.descriptor);
                let policy = matched.and_then(|matched| matched.on_store_error(domain));
                let is_shadow = modes.shadow || matched.is_some_and(Match::is_shadow_when_degraded);
                let policy = match policy.unwrap_or(self.on_store_error) {
                    // A limit that denies nothing must not make requests fail.
                    OnStoreError::Error if is_shadow => OnStoreError::Allow,
                    policy => policy,
                };
                metrics::degraded(policy, error.label());
                counters.degraded(domain, matched.and_then(Match::rule), check.hits);
                let reason = error.label();
                substituted.degraded = substituted.degraded.or(Some(Degraded { policy, reason }));
                // A ban does not end with the store.
                if let Some(verdict) = store.known_ban(cell, check) {
                    substituted.verdicts.push(Verdicts::from_iter([(check.descriptor, verdict)]));
                    continue;
                }
                match policy {
                    OnStoreError::Error => {
                        substituted.failure = substituted.failure.take().or_else(|| Some(error.clone()));
                    }
                    OnStoreError::Allow => {}
                    OnStoreError::Deny => substituted.verdicts.push(Verdicts::from_iter([denied(check)])),
                    OnStoreError::Local => {
                        let policy = check.policy.shared_by(replicas);
                        let check = Check { policy, sync: SyncMode::Strict, ..*check };
                        push_check(&mut substituted.local_requests, call.charging, cell.key.clone(), check);
                    }
                }
            }
        }
        self.decide_locally(&mut substituted, replicas);
        substituted
    }

    /// Charges the local requests to the local store.
    fn decide_locally(&self, substituted: &mut FallbackVerdicts, replicas: NonZeroU32) {
        for call in &substituted.local_requests {
            self.was_used.store(true, Ordering::Relaxed);
            let mut verdicts = self.local.decide(call);
            // Scaled from the share to the whole limit.
            verdicts.iter_mut().for_each(|(_, verdict)| {
                verdict.used = verdict.used.saturating_mul(u64::from(replicas.get()));
            });
            substituted.verdicts.push(verdicts.clone());
            substituted.local_decisions.push(Ok(verdicts));
        }
    }

    /// Releases permits in the local store that were released in the store: they may have been acquired while it
    /// failed.
    pub(super) fn release(&self, calls: &Requests, decisions: &Decisions) {
        if !self.was_used.load(Ordering::Relaxed) {
            return;
        }
        let decided = calls.iter().zip(decisions).filter(|(_, decision)| decision.is_ok());
        let checks = decided.flat_map(|(call, _)| call.checks_with_cells());
        let release = |check: &Check| matches!(check.hits, Hits::Release(_)).then_some(check.hits);
        let releases = refund::independent(checks, release);
        for call in &releases {
            self.local.decide(call);
        }
    }

    /// Refunds the charges in the local store of a request that does not pass.
    pub(super) fn refund(&self, substituted: &FallbackVerdicts) {
        for call in &refund::refunds(&substituted.local_requests, &substituted.local_decisions) {
            self.local.decide(call);
        }
    }

    /// The local store.
    pub(super) fn local(&self) -> Store {
        Store::Memory(self.local.clone())
    }
}

impl FallbackVerdicts {
    /// Whether the local store was called for a descriptor: then a refund was made there, presumably of a charge made
    /// there.
    pub(super) fn has_counted(&self, descriptor: usize) -> bool {
        self.local_requests.iter().flat_map(TagRequest::checks).any(|check| check.descriptor == descriptor)
    }

    /// The requests to the local store, if they acquired permits that are still held.
    pub(super) fn with_permits(&self) -> Option<&Requests> {
        refund::holds_permits(&self.local_requests, &self.local_decisions).then_some(&self.local_requests)
    }
}

/// Verdict of a counter whose policy is to deny. A refund or a release is never denied.
fn denied(check: &Check) -> (usize, Verdict) {
    let admitted = check.hits.is_refund();
    let after = if admitted { Duration::ZERO } else { DENIED_RETRY_AFTER };
    let verdict = Verdict {
        admitted,
        remaining: 0,
        reset_after: after,
        retry_after: after,
        used: 0,
        over: if admitted { 0 } else { check.hits.charged() },
        decided_at: Timestamp::from_micros(0),
        ban: None,
    };
    (check.descriptor, verdict)
}
