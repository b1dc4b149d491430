//! Decisions while the store fails: each limit applies its `on_store_error` policy.
//!
//! With `local`, a counter starts from its last verdict in the store, if it was in use: what remained then is divided by
//! the number of instances ([`local_share`]). What is charged meanwhile is charged to the store later, as far as it was not
//! and still counts ([`deferred`]). A call that timed out is corrected when its reply arrives ([`late`]).

mod deferred;
mod late;
mod local_share;
mod verdicts;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{num::NonZeroU32, time::Duration};

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use tollgate_core::algorithm::{Charging, Verdict};
use tollgate_core::descriptor::Hits;
use tollgate_rules::{Domain, OnStoreError};
use tollgate_runtime::backoff;
use tollgate_store::request::{Check, TagRequest, Verdicts, push_check};
use tollgate_store::{Decisions, MemoryStore, Store, StoreError};

use self::deferred::{DeferredCharges, TakenCharge};
use self::local_share::check_of_share;
pub(super) use self::verdicts::FallbackVerdicts;
use self::verdicts::{denied, reserves, vetoed};
use super::metrics::{self, LocalStart, RuleCounters};
use super::plan::{Match, PlannedLimit};
use super::{Modes, Requests, candidates::is_candidate, decision::Degraded, refund, replica_count::Replicas};

/// Interval of the attempts to send deferred charges of counters without calls.
const SEND_INTERVAL: Duration = Duration::from_millis(250);

/// Deferred charges sent at once, and the pause after them: an outage may leave thousands.
const MAX_SENT_AT_ONCE: usize = 64;
const SEND_PAUSE: Duration = Duration::from_millis(10);

/// Decides while the store fails. Clones share the local store and the number of replicas.
#[derive(Clone, Debug)]
pub struct Fallback {
    on_store_error: OnStoreError,
    local: MemoryStore,
    replicas: Replicas,
    /// Whether the local store ever counted anything.
    was_used: Arc<AtomicBool>,
    deferred: DeferredCharges,
}

/// Request of which the store did not decide all calls.
#[derive(Clone, Copy)]
pub(super) struct DegradedRequest<'a> {
    pub(super) counters: &'a RuleCounters,
    pub(super) domain: &'a Domain,
    pub(super) modes: Modes,
    pub(super) limits: &'a [PlannedLimit<'a, 'a>],
    pub(super) store: &'a Store,
}

impl Fallback {
    /// Applies `on_store_error` to limits that state no policy, and counts in `local` the hits that this instance
    /// admits by itself: each of the `replicas` admits an equal share of a limit.
    pub fn new(on_store_error: OnStoreError, local: MemoryStore, replicas: Replicas) -> Self {
        let (was_used, deferred) = (Arc::default(), DeferredCharges::default());
        Self { on_store_error, local, replicas, was_used, deferred }
    }

    /// Decides those of `calls` that failed in the store.
    pub(super) fn decide(
        &self,
        request: &DegradedRequest<'_>,
        calls: &Requests,
        decisions: &Decisions,
    ) -> FallbackVerdicts {
        let mut substituted = FallbackVerdicts::default();
        let replicas = self.replicas.known();
        metrics::degraded_request();
        for (call, decision) in calls.iter().zip(decisions) {
            if let Err(error) = decision {
                self.decide_call(request, call, error, replicas, &mut substituted);
            }
        }
        self.decide_locally(&mut substituted, replicas);
        substituted
    }

    /// Applies the policies to a call that failed with `error`, and adds the requests to the local store.
    fn decide_call(
        &self,
        request: &DegradedRequest<'_>,
        call: &TagRequest,
        error: &StoreError,
        replicas: NonZeroU32,
        substituted: &mut FallbackVerdicts,
    ) {
        let DegradedRequest { counters, domain, modes, limits, store } = *request;
        let (mut own, mut is_vetoed) = (None, false);
        // Hits that a denied request had reserved could not always be released.
        let is_withheld = call.is_of_rule || reserves(call);
        for (cell, check) in call.checks_with_cells().filter(|(_, check)| !is_candidate(check)) {
            let matched = limits.get(check.descriptor).map(|limit| &limit.matched);
            let policy = self.policy_of(matched, domain, modes, error);
            metrics::degraded(policy, error.label());
            counters.degraded(domain, matched.and_then(Match::rule), check.hits);
            let reason = error.label();
            substituted.degraded = substituted.degraded.or(Some(Degraded { policy, reason }));
            // A ban does not end with the store.
            if let Some(verdict) = store.cached_ban(cell, check) {
                is_vetoed |= substituted.substitute(check, verdict);
                continue;
            }
            match policy {
                OnStoreError::Error => {
                    is_vetoed = true;
                    substituted.failure = substituted.failure.take().or_else(|| Some(error.clone()));
                }
                OnStoreError::Allow => {}
                OnStoreError::Deny => is_vetoed |= substituted.substitute(check, denied(check)),
                OnStoreError::Local => {
                    let check = check_of_share(&self.local, store, cell, check, matched, error, replicas);
                    let key = cell.key.clone();
                    match (is_withheld, &mut own) {
                        (true, None) => own = Some(call.with_check(key, check)),
                        (true, Some(own)) => own.push(key, check),
                        (false, _) => push_check(&mut substituted.local_requests, call.charging, key, check),
                    }
                }
            }
        }
        // Charges of other calls all or none are refunded after the fold.
        let own = own.map(|call| if is_vetoed { vetoed(call) } else { call });
        substituted.local_requests.extend(own);
    }

    /// The policy of a limit that the store did not decide.
    fn policy_of(
        &self,
        matched: Option<&Match<'_>>,
        domain: &Domain,
        modes: Modes,
        error: &StoreError,
    ) -> OnStoreError {
        let policy = matched.and_then(|matched| matched.on_store_error(domain));
        let is_shadow = modes.shadow || matched.is_some_and(Match::is_shadow_when_degraded);
        match policy.unwrap_or(self.on_store_error) {
            // An operator decided so for all limits.
            _ if *error == StoreError::Emergency => OnStoreError::Local,
            // A limit that denies nothing must not make requests fail.
            OnStoreError::Error if is_shadow => OnStoreError::Allow,
            policy => policy,
        }
    }

    /// Charges the local requests to the local store.
    fn decide_locally(&self, substituted: &mut FallbackVerdicts, replicas: NonZeroU32) {
        for call in &substituted.local_requests {
            self.was_used.store(true, Ordering::Relaxed);
            let mut verdicts = self.local.decide(call);
            let is_first = |(check, (_, verdict)): &(&Check, &(usize, Verdict))| {
                check.hits.charged() > 0 && verdict.used <= check.hits.charged()
            };
            call.checks()
                .zip(&verdicts)
                .filter(is_first)
                .for_each(|_| metrics::local_start(LocalStart::Share));
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
        // Hits that were used count in the store.
        let release = |check: &Check| match check.hits {
            Hits::Release(lease) | Hits::Settle { lease, .. } => Some(Hits::Release(lease)),
            _ => None,
        };
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

    /// Defers the charges of `calls` that were made in the local store, and that the store certainly did not make.
    /// `is_refunded` states that charges all or none were refunded.
    pub(super) fn defer(
        &self,
        substituted: &FallbackVerdicts,
        calls: &Requests,
        decisions: &Decisions,
        is_refunded: bool,
    ) {
        let is_unsent = |decision: &Result<Verdicts, StoreError>| {
            decision.as_ref().is_err_and(StoreError::charged_nothing)
        };
        let unsent = calls.iter().zip(decisions).filter(|(_, decision)| is_unsent(decision));
        for (cell, check) in unsent.flat_map(|(call, _)| call.checks_with_cells()) {
            let Some((share, charging)) = substituted.passed(check.descriptor) else { continue };
            match check.hits {
                Hits::Charge(hits) if !(is_refunded && charging == Charging::AllOrNone) => {
                    self.deferred.add(&cell.key, check, share, hits.get());
                }
                Hits::Refund(hits) => self.deferred.refund(&cell.key, check.record, hits.get()),
                _ => {}
            }
        }
    }

    /// Sends the deferred charges of the counters of `calls`, so that they are in the queue before the calls. Usually there
    /// are none.
    pub(super) fn charge_before(&self, store: &Store, calls: &Requests) {
        if self.deferred.is_empty() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let taken = self.deferred.take_for(calls, Instant::now());
        if taken.is_empty() {
            return;
        }
        let (fallback, store) = (self.clone(), store.clone());
        let mut charge = Box::pin(async move { fallback.charge(&store, taken).await });
        // The first poll queues the charges; no caller waits for the rest.
        if charge.as_mut().now_or_never().is_none() {
            runtime.spawn(charge);
        }
    }

    /// Sends charges to the store. Returns whether any was made.
    async fn charge(&self, store: &Store, taken: Vec<TakenCharge>) -> bool {
        self.deferred.send(store, taken, |cell, record, share| self.local.used(cell, record, share)).await
    }

    /// Sends all deferred charges in a task of its own, once the store decides again, while `is_allowed`.
    pub(super) fn send_deferred(&self, store: &Store, is_allowed: impl Fn() -> bool + Send + Sync + 'static) {
        if self.deferred.is_empty() || !self.deferred.become_sender() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return self.deferred.resign() };
        let (fallback, store) = (self.clone(), store.clone());
        runtime.spawn(async move {
            loop {
                sleep(backoff::around(SEND_INTERVAL, 50)).await;
                while is_allowed()
                    && let taken = fallback.deferred.take_some(MAX_SENT_AT_ONCE)
                    && !taken.is_empty()
                    && fallback.charge(&store, taken).await
                {
                    sleep(SEND_PAUSE).await;
                }
                if fallback.deferred.is_empty() {
                    fallback.deferred.resign();
                    // A charge may have been added before that.
                    if fallback.deferred.is_empty() || !fallback.deferred.become_sender() {
                        break;
                    }
                }
            }
        });
    }

    /// The local store.
    pub(super) fn local(&self) -> Store {
        Store::new(self.local.clone())
    }
}
