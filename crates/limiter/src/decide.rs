//! The limiter: decides requests by the active rules.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{clock::Clock, descriptor::Descriptor, lease::LeaseId};
use tollgate_rules::{CanonicalAddresses, Domain};
use tollgate_store::{Decisions, Store, StoreError, request::Check};

use crate::{
    ActiveRules, ActiveSet, BegunBans, Deadline, Match, Matches, Modes, OwnShares, ReachedThresholds,
    Requests, SnapshotGuard, candidates,
    decision::{Code, Decision, Listed, SeveralLimits, Status},
    extra_limits::ExtraLimits,
    fallback::{Corrections, DegradedRequest, Fallback, FallbackVerdicts},
    leases::{self, HeldPermits, NotRepeatable},
    lists,
    matched::Changes,
    matching,
    metrics::{self, RuleCounters},
    precheck, refund, requests, shedding, talkers, unknown_domains,
};

/// Decides requests by the active rules.
#[derive(Clone, Debug)]
pub struct Limiter {
    rules: Arc<ActiveRules>,
    store: Store,
    pub(super) modes: Modes,
    fallback: Option<Fallback>,
    begun_bans: BegunBans,
    reached: ReachedThresholds,
    shares: OwnShares,
    clock: Clock,
    /// Lease of a request that its caller names.
    lease: Option<LeaseId>,
}

pub(super) type Statuses<'r> = SmallVec<[Status<'r>; 2]>;

/// Calls to the store, its decisions on them, and those of the fallback on what it did not decide.
#[derive(Clone, Copy)]
struct Decided<'a> {
    calls: &'a Requests,
    decisions: &'a Decisions,
    degraded: Option<&'a FallbackVerdicts>,
}

impl Limiter {
    /// Enforces the active version of `rules` and counts in `store`.
    pub fn new(rules: Arc<ActiveRules>, store: Store, modes: Modes) -> Self {
        Self {
            rules,
            store,
            modes,
            fallback: None,
            begun_bans: BegunBans::default(),
            reached: ReachedThresholds::default(),
            shares: OwnShares::default(),
            clock: Clock::System,
            lease: None,
        }
    }

    /// Reserves hits under `lease`, for a caller that may repeat the request: see [`Self::check_lease`]. Such a lease ends
    /// when it is settled or its time to live has passed, and is never released.
    #[must_use]
    pub fn with_lease(self, lease: LeaseId) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// Records the bans that begin in `begun_bans`.
    #[must_use]
    pub fn with_begun_bans(self, begun_bans: BegunBans) -> Self {
        Self { begun_bans, ..self }
    }

    /// Records the thresholds of limits that are reached in `reached`.
    #[must_use]
    pub fn with_reached_thresholds(self, reached: ReachedThresholds) -> Self {
        Self { reached, ..self }
    }

    /// Enforces these shares of the limits that all regions enforce together.
    #[must_use]
    pub fn with_shares(self, shares: OwnShares) -> Self {
        Self { shares, ..self }
    }

    /// Applies `fallback` to counters that the store does not decide. Without one, their requests fail.
    #[must_use]
    pub fn with_fallback(self, fallback: Fallback) -> Self {
        Self { fallback: Some(fallback), ..self }
    }

    /// Uses `clock` for the expiry of list entries, and for the points in time in responses.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Shares reports of utilization with other instances, and sets the pass rates of the rules that shed, until the rules
    /// are dropped. To be run once in a process.
    pub fn share_utilization(&self) -> impl Future<Output = ()> + Send + use<> {
        let rules = Arc::downgrade(&self.rules);
        shedding::share_utilization(rules, self.store.clone(), self.modes, self.clock.clone())
    }

    /// Returns the rules, lists and switches that are active now.
    pub fn rules(&self) -> SnapshotGuard {
        self.rules.active()
    }

    /// Clock of the points in time in responses.
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether decisions are made without waiting.
    pub const fn decides_at_once(&self) -> bool {
        matches!(self.store, Store::Memory(_)) && self.shares.watch.is_none()
    }

    /// Whether repeating the request under the lease that its caller names, if it does, would change nothing.
    ///
    /// # Errors
    /// When a repetition could charge again, or be charged in part.
    pub fn check_lease(
        &self,
        active: &ActiveSet<'_>,
        domain: &str,
        descriptors: &[Descriptor<'_>],
    ) -> Result<(), NotRepeatable> {
        // Without one, requests pay for no more than this.
        let Some(lease) = self.lease else { return Ok(()) };
        let Some(rules) = active.rules.domain(domain) else { return Ok(()) };
        let canonical = CanonicalAddresses::of(rules, descriptors);
        let descriptors = &*canonical.apply(descriptors);
        let (mut matches, limits) = matching::matches(rules, self.changes(active), descriptors);
        let shares = OwnShares::default();
        let lease = Some(lease);
        let calls = requests::requests(rules, &limits, &mut matches, lease, self.modes, &shares, &self.clock);
        leases::check(&calls, &matches)
    }

    /// Whether a request is denied because the lease that its caller names is known to a limit and does not hold its hits.
    pub fn has_id_conflict(&self, decision: &Decision<'_>) -> bool {
        self.lease.is_some()
            && decision.code == Code::OverLimit
            && decision.statuses.iter().filter_map(Status::limited).any(|of| of.verdict.has_conflict())
    }

    /// Decides a request. Returns the permits that it holds too, if it passes and acquired any.
    ///
    /// # Errors
    /// When a counter could not be decided.
    pub async fn decide<'r>(
        &self,
        active: ActiveSet<'r>,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        deadline: Deadline,
    ) -> Result<(Decision<'r>, Option<HeldPermits>), StoreError> {
        let Some(rules) = active.rules.domain(domain) else {
            return Ok((self.decide_without_rules(&active, domain, descriptors), None));
        };
        let canonical = CanonicalAddresses::of(rules, descriptors);
        if canonical.is_empty() {
            self.decide_by(active, rules, descriptors, deadline).await
        } else {
            Box::pin(self.decide_by(active, rules, &canonical.apply(descriptors), deadline)).await
        }
    }

    async fn decide_by<'r>(
        &self,
        active: ActiveSet<'r>,
        rules: &'r Domain,
        descriptors: &[Descriptor<'_>],
        deadline: Deadline,
    ) -> Result<(Decision<'r>, Option<HeldPermits>), StoreError> {
        let (mut matches, limits) = matching::matches(rules, self.changes(&active), descriptors);
        let listed = lists::apply(active.lists, &self.clock, &rules.name, limits.descriptors(), &mut matches);
        if let Some(listed) = listed {
            active.companion.listed(rules, listed.list());
        }
        let shed =
            if rules.sheds { shedding::apply(self.modes, limits.descriptors(), &mut matches) } else { None };
        // One lease for all permits of the request.
        let lease =
            matches.iter().any(Match::acquires_permits).then(|| self.lease.unwrap_or_else(LeaseId::random));
        let mut calls =
            requests::requests(rules, &limits, &mut matches, lease, self.modes, &self.shares, &self.clock);
        requests::deny_peeks_at_zero(&mut calls, &matches);
        let permits = lease.map(|lease| match self.lease {
            Some(lease) => HeldPermits::named(lease),
            None => HeldPermits::new(self.store.clone(), &calls, lease),
        });
        let decisions = match deadline {
            _ if self.fallback.is_some() && active.lists.is_emergency(&rules.name) => {
                calls.iter().map(|_| Err(StoreError::Emergency)).collect()
            }
            Deadline::Exceeded => self.store.decide_from_cache(&calls),
            Deadline::At(wait) => {
                // In shadow mode no hit waits for what it is given anyway.
                let left = wait.filter(|_| !self.modes.shadow && matches.iter().any(Match::waits_for_loans));
                let until = left.and_then(|left| Instant::now().checked_add(left));
                let decided = self.decide_in_store(&mut calls, wait).await;
                self.shares.after_loans(&self.store, &matches, &calls, decided, until).await
            }
        };
        let degraded = self.decide_degraded(active.companion, rules, &matches, &calls, &decisions);
        let mut statuses = self.statuses(&matches, &decisions, degraded.as_ref());
        // Charges are recorded even if another call failed.
        self.record(active.companion, rules, &limits, &matches, &statuses, &decisions);
        let several = limits.fold(&mut statuses);
        let decided = Decided { calls: &calls, decisions: &decisions, degraded: degraded.as_ref() };
        let decision = self.conclude(statuses, several, listed, shed, decided);
        let permits = self.settle_permits(decision.as_ref().ok(), permits, decided);
        decision.map(|decision| (decision, permits))
    }

    /// Changes that operators made to the rules.
    const fn changes<'r, 'c>(&'c self, active: &ActiveSet<'r>) -> Changes<'r, 'c>
    where
        'r: 'c,
    {
        Changes { switched: active.switched, overridden: active.overridden, clock: &self.clock }
    }

    /// Decides in the store, after the deferred charges of the same counters.
    async fn decide_in_store(&self, calls: &mut Requests, wait: Option<Duration>) -> Decisions {
        let deadline = self.store.deadline(wait);
        if let Some(fallback) = &self.fallback {
            fallback.charge_before(&self.store, calls);
        }
        precheck::decide(&self.store, calls, deadline).await
    }

    /// Decides what the store did not decide, and releases in the local store what was released in the store.
    fn decide_degraded(
        &self,
        counters: &RuleCounters,
        rules: &Domain,
        matches: &Matches<'_>,
        calls: &Requests,
        decisions: &Decisions,
    ) -> Option<FallbackVerdicts> {
        let fallback = self.fallback.as_ref()?;
        fallback.release(calls, decisions);
        if decisions.iter().all(Result::is_ok) {
            return None;
        }
        let request =
            DegradedRequest { counters, domain: rules, modes: self.modes, matches, store: &self.store };
        Some(fallback.decide(&request, calls, decisions))
    }

    /// Records the statuses in metrics, for comparisons with candidates, and for operators.
    fn record(
        &self,
        counters: &RuleCounters,
        rules: &Domain,
        limits: &ExtraLimits<'_, '_>,
        matches: &Matches<'_>,
        statuses: &Statuses<'_>,
        decisions: &Decisions,
    ) {
        let descriptors = limits.descriptors();
        metrics::record(counters, rules, limits, matches, statuses, self.modes);
        candidates::compare(counters, rules, descriptors, matches, statuses, decisions);
        self.begun_bans.record(rules, descriptors, matches, statuses);
        self.reached.record(rules, descriptors, matches, statuses);
    }

    /// Returns the permits that the request holds, if it passes, and otherwise releases them.
    fn settle_permits(
        &self,
        decision: Option<&Decision<'_>>,
        permits: Option<HeldPermits>,
        Decided { calls, decisions, degraded }: Decided<'_>,
    ) -> Option<HeldPermits> {
        let is_ok = decision.is_some_and(|decision| decision.code == Code::Ok);
        let holds_in_store = || refund::holds_permits(calls, decisions);
        let held_locally = degraded.and_then(FallbackVerdicts::with_permits);
        if let Some(permits) = permits {
            if is_ok && (holds_in_store() || held_locally.is_some()) {
                if let (Some(fallback), Some(calls)) = (&self.fallback, held_locally) {
                    permits.add_store(fallback.local(), calls);
                }
                return Some(permits);
            }
            // Everything that has to be released was, or is below.
            permits.hand_over();
        }
        if is_ok && self.lease.is_none() && decisions.iter().any(Result::is_err) {
            self.store.refund_in_background(refund::uncertain_releases(calls, decisions));
        }
        None
    }

    /// Decides a request for a domain that has no rules.
    fn decide_without_rules<'r>(
        &self,
        active: &ActiveSet<'_>,
        domain: &str,
        descriptors: &[Descriptor<'_>],
    ) -> Decision<'r> {
        let mut matches = descriptors.iter().map(|_| Match::None).collect();
        let listed = lists::apply(active.lists, &self.clock, domain, descriptors, &mut matches);
        if let Some(listed) = listed {
            metrics::listed_without_rules(listed.list());
        }
        let statuses: Statuses<'r> = matches.iter().map(Match::status_without_counter).collect();
        if let Some(name) = unknown_domains::record(active.rules, domain, self.clock.now()) {
            for (descriptor, status) in descriptors.iter().zip(&statuses) {
                let is_denied = status.code() == Code::OverLimit;
                talkers::record(&name, &descriptor.entries, descriptor.hits.charged(), is_denied);
            }
        }
        Decision {
            code: self.overall(&statuses),
            degraded: None,
            listed,
            shed: None,
            statuses,
            several: SeveralLimits::default(),
        }
    }

    /// Folds the statuses into the request's decision, and refunds the charges of a request that does not pass.
    fn conclude<'r>(
        &self,
        statuses: Statuses<'r>,
        several: SeveralLimits<'r>,
        listed: Option<Listed>,
        shed: Option<Duration>,
        Decided { calls, decisions, degraded }: Decided<'_>,
    ) -> Result<Decision<'r>, StoreError> {
        let failure = match degraded {
            Some(degraded) => degraded.failure.as_ref(),
            None => decisions.iter().find_map(|decision| decision.as_ref().err()),
        };
        let code = self.overall(&statuses);
        // A limit that denies suffices, whatever the verdict of the failed ones would have been.
        let failure = failure.filter(|_| !self.is_denied(&statuses));
        // What a caller named may be reserved by another attempt of it too.
        if (failure.is_some() || code == Code::OverLimit) && self.lease.is_none() {
            self.store.refund_in_background(refund::refunds(calls, decisions));
            self.fallback.iter().zip(degraded).for_each(|(fallback, degraded)| fallback.refund(degraded));
        }
        if decisions.iter().any(Result::is_err) {
            let decided = Decided { calls, decisions, degraded };
            self.settle_failed_calls(decided, failure.is_some(), code);
        }
        match failure {
            Some(error) => Err(error.clone()),
            None => {
                let degraded = degraded.and_then(|degraded| degraded.degraded);
                Ok(Decision { code, degraded, listed, shed, statuses, several })
            }
        }
    }

    /// Makes the refunds and charges later that the store did not make.
    fn settle_failed_calls(
        &self,
        Decided { calls, decisions, degraded }: Decided<'_>,
        is_failure: bool,
        code: Code,
    ) {
        // A caller that gets an error may repeat the refund itself.
        let is_due = |check: &Check| {
            // A charge beyond the limit was spent before; the local store only decides meanwhile.
            let is_made = |degraded: &FallbackVerdicts| {
                degraded.has_counted(check.descriptor) && !check.hits.is_overdraft()
            };
            !is_failure && degraded.is_some_and(|degraded| !is_made(degraded))
        };
        self.store.refund_in_background(refund::missed(calls, decisions, is_due));
        if let (Some(fallback), Some(degraded)) = (&self.fallback, degraded) {
            let is_refunded = is_failure || code == Code::OverLimit;
            fallback.defer(degraded, calls, decisions, is_refunded);
            let rules = Arc::clone(&self.rules);
            let is_allowed = move || rules.lists().emergencies().is_empty();
            let late = Corrections { calls, decisions, is_refunded };
            fallback.correct_late(&self.store, degraded, late, is_allowed.clone());
            fallback.send_deferred(&self.store, is_allowed);
        }
    }
}
