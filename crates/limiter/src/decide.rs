//! The limiter: decides requests by the active rules, and settles their charges and permits.

use std::sync::Arc;

use tokio::time::Instant;
use tollgate_core::{clock::Clock, descriptor::Descriptor, lease::LeaseId};
use tollgate_rules::{CanonicalAddresses, Domain};
use tollgate_store::{Decisions, Store, StoreError, request::Check, request::Requests};

use crate::calls::{self, ChargeTerms};
use crate::decision::{Code, Decision, Status};
use crate::fallback::{DegradedRequest, Fallback, FallbackVerdicts};
use crate::fold::{self, Decided, Statuses};
use crate::leases::{self, HeldPermits, NotRepeatable};
use crate::metrics::{self, RuleCounters};
use crate::plan::{Changes, Match, Plan, PlannedLimit};
use crate::{
    ActiveRules, ActiveSet, Deadline, Modes, Observations, OwnShares, SnapshotGuard, lists, matching, refund,
    shedding, talkers, unknown_domains,
};

/// Decides requests by the active rules. [`Limiter::new`] has the parts that are not optional.
#[derive(Clone, Debug)]
pub struct Limiter {
    /// The rules, lists and switches.
    pub rules: Arc<ActiveRules>,
    /// Where counters live.
    pub store: Store,
    /// Modes of the process.
    pub modes: Modes,
    /// Decides counters that the store does not decide. Without it, their requests fail.
    pub fallback: Option<Fallback>,
    /// Reports of bans that begin and of thresholds of limits that are reached.
    pub observations: Observations,
    /// Shares of the limits that all regions enforce together.
    pub shares: OwnShares,
    /// Clock of the expiry of list entries, and of the points in time in responses.
    pub clock: Clock,
    /// Lease of a request that its caller names, and may repeat: see [`Self::check_lease`]. Such a lease ends when it is
    /// settled or its time to live has passed, and is never released.
    pub lease: Option<LeaseId>,
}

impl Limiter {
    /// Enforces the active version of `rules` and counts in `store`.
    pub fn new(rules: Arc<ActiveRules>, store: Store, modes: Modes) -> Self {
        Self {
            rules,
            store,
            modes,
            fallback: None,
            observations: Observations::default(),
            shares: OwnShares::default(),
            clock: Clock::System,
            lease: None,
        }
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

    /// Whether decisions are made without waiting.
    pub fn decides_at_once(&self) -> bool {
        self.store.decides_at_once() && self.shares.watch.is_none()
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
        if self.lease.is_none() {
            return Ok(());
        }
        let Some(rules) = active.rules.domain(domain) else { return Ok(()) };
        let canonical = CanonicalAddresses::of(rules, descriptors);
        let descriptors = canonical.apply(descriptors);
        let mut plan = matching::plan(rules, self.changes(active), &descriptors);
        let shares = OwnShares::default();
        calls::add(&mut plan, &ChargeTerms { shares: &shares, ..self.terms(self.lease) });
        leases::check(&plan)
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
        let mut plan = self.match_limits(&active, rules, descriptors);
        let permits = self.plan_calls(&mut plan);
        let decisions = self.decide_calls(&active, &mut plan, deadline).await;
        let degraded = self.decide_degraded(active.companion, &plan, &decisions);
        let decided = Decided { decisions: &decisions, degraded: degraded.as_ref() };
        let statuses = fold::statuses(&plan, decided, self.modes);
        // Charges are observed even if another call failed.
        self.observations.observe(active.companion, self.modes, &plan, &statuses, decided);
        let decision = fold::decision(&plan, decided, statuses, self.modes);
        let permits = self.settle(&plan.calls, permits, decided, &decision);
        decision.map(|decision| (decision, permits))
    }

    /// Changes that operators made to the rules.
    const fn changes<'r, 'c>(&'c self, active: &ActiveSet<'r>) -> Changes<'r, 'c>
    where
        'r: 'c,
    {
        Changes { switched: active.switched, overridden: active.overridden, clock: &self.clock }
    }

    /// Matches the descriptors with limits, lists, and rules that shed.
    fn match_limits<'r, 'd>(
        &self,
        active: &ActiveSet<'r>,
        rules: &'r Domain,
        descriptors: &'d [Descriptor<'_>],
    ) -> Plan<'r, 'd> {
        let mut plan = matching::plan(rules, self.changes(active), descriptors);
        plan.listed = lists::apply(active.lists, &self.clock, &rules.name, &mut plan.limits);
        if let Some(listed) = plan.listed {
            active.companion.listed(rules, listed.list());
        }
        if rules.sheds {
            plan.shed = shedding::apply(self.modes, &mut plan.limits);
        }
        plan
    }

    const fn terms(&self, lease: Option<LeaseId>) -> ChargeTerms<'_> {
        ChargeTerms { modes: self.modes, shares: &self.shares, clock: &self.clock, lease }
    }

    /// Plans the calls to the store. Returns the permits that they acquire, under one lease for the request.
    fn plan_calls(&self, plan: &mut Plan<'_, '_>) -> Option<HeldPermits> {
        let acquires_permits = plan.has(Match::acquires_permits);
        let lease = acquires_permits.then(|| self.lease.unwrap_or_else(LeaseId::random));
        calls::add(plan, &self.terms(lease));
        calls::deny_peeks_at_zero(plan);
        lease.map(|lease| match self.lease {
            Some(lease) => HeldPermits::named(lease),
            None => HeldPermits::new(self.store.clone(), &plan.calls, lease),
        })
    }

    /// Decides the calls of a plan in the store, after the deferred charges of the same counters.
    async fn decide_calls(
        &self,
        active: &ActiveSet<'_>,
        plan: &mut Plan<'_, '_>,
        deadline: Deadline,
    ) -> Decisions {
        if self.fallback.is_some() && active.lists.is_emergency(&plan.domain.name) {
            return plan.calls.iter().map(|_| Err(StoreError::Emergency)).collect();
        }
        let Deadline::At(wait) = deadline else { return self.store.decide_from_cache(&plan.calls) };
        // In shadow mode no hit waits for what it is given anyway.
        let left = wait.filter(|_| !self.modes.shadow && plan.has(Match::waits_for_loans));
        let until = left.and_then(|left| Instant::now().checked_add(left));
        let deadline = self.store.deadline(wait);
        if let Some(fallback) = &self.fallback {
            fallback.charge_before(&self.store, &plan.calls);
        }
        let decisions = calls::decide(&self.store, &mut plan.calls, deadline).await;
        self.shares.after_loans(&self.store, plan, decisions, until).await
    }

    /// Decides what the store did not decide, and releases in the local store what was released in the store.
    fn decide_degraded(
        &self,
        counters: &RuleCounters,
        Plan { domain, limits, calls, .. }: &Plan<'_, '_>,
        decisions: &Decisions,
    ) -> Option<FallbackVerdicts> {
        let fallback = self.fallback.as_ref()?;
        fallback.release(calls, decisions);
        if decisions.iter().all(Result::is_ok) {
            return None;
        }
        let request = DegradedRequest { counters, domain, modes: self.modes, limits, store: &self.store };
        Some(fallback.decide(&request, calls, decisions))
    }

    /// Refunds the charges of a request that does not pass, makes those that the store did not make later, and returns the
    /// permits that the request holds if it passes.
    pub(super) fn settle(
        &self,
        calls: &Requests,
        permits: Option<HeldPermits>,
        decided: Decided<'_>,
        decision: &Result<Decision<'_>, StoreError>,
    ) -> Option<HeldPermits> {
        let Decided { decisions, degraded } = decided;
        let passes = decision.as_ref().is_ok_and(|decision| decision.code == Code::Ok);
        // What a caller named may be reserved by another attempt of it too.
        if !passes && self.lease.is_none() {
            self.store.refund_in_background(refund::refunds(calls, decisions));
            self.fallback.iter().zip(degraded).for_each(|(fallback, degraded)| fallback.refund(degraded));
        }
        if decisions.iter().any(Result::is_err) {
            self.settle_failed_calls(calls, decided, passes, decision.is_err());
        }
        self.settle_permits(calls, permits, decided, passes)
    }

    /// Makes the refunds and charges later that the store did not make.
    fn settle_failed_calls(
        &self,
        calls: &Requests,
        Decided { decisions, degraded }: Decided<'_>,
        passes: bool,
        is_failure: bool,
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
            fallback.defer(degraded, calls, decisions, !passes);
            let rules = Arc::clone(&self.rules);
            let is_allowed = move || rules.lists().emergencies.is_empty();
            fallback.correct_late(&self.store, degraded, calls, decisions, !passes, is_allowed.clone());
            fallback.send_deferred(&self.store, is_allowed);
        }
    }

    /// Returns the permits that the request holds, if it passes, and otherwise releases them.
    fn settle_permits(
        &self,
        calls: &Requests,
        permits: Option<HeldPermits>,
        Decided { decisions, degraded }: Decided<'_>,
        passes: bool,
    ) -> Option<HeldPermits> {
        if let Some(permits) = permits {
            let held_locally = degraded.and_then(FallbackVerdicts::with_permits);
            if passes && (held_locally.is_some() || refund::holds_permits(calls, decisions)) {
                if let (Some(fallback), Some(calls)) = (&self.fallback, held_locally) {
                    permits.add_store(fallback.local(), calls);
                }
                return Some(permits);
            }
            // Everything that has to be released was, or is below.
            permits.hand_over();
        }
        if passes && self.lease.is_none() && decisions.iter().any(Result::is_err) {
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
        let mut limits =
            descriptors.iter().map(|descriptor| PlannedLimit::first(descriptor, Match::None)).collect();
        let listed = lists::apply(active.lists, &self.clock, domain, &mut limits);
        if let Some(listed) = listed {
            metrics::listed_without_rules(listed.list());
        }
        let statuses: Statuses<'r> =
            limits.iter().map(|limit| limit.matched.status_without_counter()).collect();
        if let Some(name) = unknown_domains::record(active.rules, domain, self.clock.now()) {
            for (descriptor, status) in descriptors.iter().zip(&statuses) {
                let is_denied = status.code() == Code::OverLimit;
                talkers::record(&name, &descriptor.entries, descriptor.hits.charged(), is_denied);
            }
        }
        Decision { code: fold::code(&statuses, self.modes), degraded: None, listed, shed: None, statuses }
    }
}
