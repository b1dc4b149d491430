//! Tokens charged ahead of their use, and their number.
//!
//! They are charged before they are used, so the limit is never exceeded. The price is a denial in another worker while
//! they are held, whose frequency depends on their number: as many as this worker needs for a moment, and no more than
//! its share of the remaining capacity, divided by a caution factor. Its share of a window is its own demand divided by
//! the total demand, which is observed as the charges of the window: so all workers together hold no more than the
//! remaining capacity divided by the factor, however many they are. Of a bucket, the total demand cannot be observed,
//! so the factor is larger, and suffices for about sixteen workers. Near exhaustion every request goes to Redis.
//!
//! A counter that uses little of its limit is charged ahead for a longer time (`LeaseTiming`), as far as all workers
//! together then hold no more than a sixtieth of the limit, nor the remaining capacity divided by the factor.

#![allow(clippy::float_arithmetic)] // All of it estimates what is worth while; none of it decides what passes.

use std::{num::NonZeroU64, time::Duration};

use tokio::time::Instant;
use tollgate_core::algorithm::{Policy, Prefetch, RegionShare, Verdict};
use tollgate_core::{SyncMode, descriptor::Hits};

use super::demand::{Heat, LeaseTiming, Rate, SharedRate};
use crate::{after, request::Check};

/// Shortest time for which tokens are held.
const MIN_HOLD: Duration = Duration::from_millis(4);

/// Divisors of the remaining capacity: of a window, and of a bucket, whose total demand is not observed.
const CAUTION_FACTOR: f64 = 4.0;
const BUCKET_CAUTION_FACTOR: f64 = 16.0;

/// Part of a counter's capacity below which `sync: auto` charges nothing ahead.
const SCARCE_PART: u64 = 10;

/// Part of a counter's capacity of which all workers together hold a quarter, at most, for a long horizon.
const LONG_HORIZON_PART: u64 = 15;

/// Unit of a share: 1/65,536.
const SHARE_UNITS: f64 = 65_536.0;

/// The tokens of a worker for one counter, and the observed demand.
#[derive(Debug)]
pub(super) struct LeasedTokens {
    tokens: u64,
    /// Time until which the tokens must be spent.
    spend_by: Instant,
    /// Number of the grant of these tokens in its cache.
    pub(super) grant: u64,
    /// Verdict of Redis without the tokens, and the number of tokens spent since.
    basis: Option<Basis>,
    spent: u64,
    demand: Rate,
    /// Demand of all workers.
    total_demand: SharedRate,
    /// Whether a request for tokens is in flight.
    is_requested: bool,
    /// Requests, for `sync: auto`.
    heat: Heat,
    /// Capacity at the last verdict.
    capacity: Capacity,
    /// Share of the region in the limit, by which unused tokens are refunded.
    pub(super) share: Option<RegionShare>,
}

#[derive(Clone, Copy, Debug)]
struct Basis {
    verdict: Verdict,
    /// Not later than the decision.
    noted_at: Instant,
}

/// Hits that a counter admits in all, and those that remain.
#[derive(Clone, Copy, Debug, Default)]
struct Capacity {
    total: u64,
    remaining: u64,
}

/// Tokens that were not spent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unused {
    pub(super) policy: Policy,
    pub(super) share: Option<RegionShare>,
    amount: NonZeroU64,
    basis: Basis,
}

impl LeasedTokens {
    pub(super) fn new(now: Instant) -> Self {
        let demand = Rate::zero(now);
        Self {
            tokens: 0,
            spend_by: now,
            grant: 0,
            basis: None,
            spent: 0,
            demand,
            total_demand: SharedRate::default(),
            is_requested: false,
            heat: Heat::new(now),
            capacity: Capacity::default(),
            share: None,
        }
    }

    /// Records the demand for hits.
    pub(super) fn record_demand(&mut self, check: &Check, now: Instant) {
        self.demand.add(check.hits.charged(), now, LeaseTiming::of(&check.policy, check.sync).averaging_time);
        self.heat.record(now);
    }

    /// Admits a charge if there are tokens for it.
    pub(super) fn spend(&mut self, hits: Hits, now: Instant) -> Option<Verdict> {
        let Hits::Charge(hits) = hits else { return None };
        let Basis { verdict, noted_at } = self.basis.filter(|_| now < self.spend_by)?;
        self.tokens = self.tokens.checked_sub(hits.get())?;
        self.spent = self.spent.saturating_add(hits.get());
        Some(Verdict {
            admitted: true,
            remaining: verdict.remaining.saturating_sub(self.spent),
            retry_after: Duration::ZERO,
            used: verdict.used.saturating_add(self.spent),
            over: 0,
            ..verdict.later(now.duration_since(noted_at))
        })
    }

    /// Reverts [`LeasedTokens::spend`].
    pub(super) fn unspend(&mut self, hits: Hits) {
        self.tokens = self.tokens.saturating_add(hits.charged());
        self.spent = self.spent.saturating_sub(hits.charged());
    }

    /// The tokens to charge ahead, if the counter is worth it.
    pub(super) fn wanted(&self, sync: SyncMode, policy: &Policy, now: Instant) -> Option<Prefetch> {
        let Capacity { total, remaining } = self.capacity;
        let is_leased = match sync {
            SyncMode::Strict => false,
            SyncMode::Leased => true,
            SyncMode::Auto => remaining >= total / SCARCE_PART && self.heat.is_hot(now),
        };
        let timing = LeaseTiming::of(policy, sync);
        let demand = is_leased.then(|| self.demand.at(now, timing.averaging_time))?;
        let within = |horizon: Duration| demand * horizon.as_secs_f64();
        let most = within(timing.long_horizon);
        if most < 1.0 {
            return None;
        }
        let caution = if is_bucket(policy) { BUCKET_CAUTION_FACTOR } else { CAUTION_FACTOR };
        let share = demand / self.total_demand.per_second.max(demand) / caution;
        let for_long_horizons = remaining.min(total / LONG_HORIZON_PART) as f64;
        let tokens = (share * for_long_horizons).max(within(timing.horizon)).min(most);
        let wanted = Prefetch {
            max_tokens: tokens as u32,
            share: (share * SHARE_UNITS) as u16,
            hold_millis: u16::try_from(timing.max_hold.as_millis()).unwrap_or(u16::MAX),
        };
        (wanted.max_tokens > 0 && wanted.share > 0).then_some(wanted)
    }

    /// The tokens to charge ahead with the next request, if any.
    pub(super) fn prefetch(&mut self, sync: SyncMode, policy: &Policy, now: Instant) -> Option<Prefetch> {
        // Before the first observation, every worker would take itself for the only one.
        let has_total = is_bucket(policy) || self.total_demand.per_second > 0.0;
        if self.is_requested || !has_total {
            return None;
        }
        let wanted = self.wanted(sync, policy, now)?;
        // Enough are held where another counter of the request caused the call.
        if self.held(now) > u64::from(wanted.max_tokens / 2) {
            return None;
        }
        self.is_requested = true;
        Some(wanted)
    }

    /// Records the failure of a request that was to charge ahead.
    pub(super) fn prefetch_failed(&mut self) {
        self.is_requested = false;
    }

    /// Records the outcome of a request sent at `sent_at` or later, with the tokens charged ahead by it. Returns the
    /// unused ones of an earlier request.
    pub(super) fn learn(
        &mut self,
        check: &Check,
        verdict: &Verdict,
        prefetched: u32,
        sent_at: Instant,
    ) -> Option<Unused> {
        let (policy, timing) = (&check.policy, LeaseTiming::of(&check.policy, check.sync));
        self.is_requested = false;
        self.total_demand.observe(policy, verdict, prefetched, timing.averaging_time);
        self.capacity = Capacity::of(verdict);
        if prefetched == 0 {
            return None;
        }
        let before = self.unused(policy);
        // A lower demand would be held for the longest time, as this one is.
        let min_demand = timing.long_horizon.as_secs_f64().recip();
        let demand = self.demand.at(sent_at, timing.averaging_time).max(min_demand);
        let seconds = 2.0 * f64::from(prefetched) / demand;
        let hold = Duration::from_secs_f64(seconds).clamp(MIN_HOLD, timing.max_hold);
        let valid_until = policy.prefetched_until(verdict.decided_at);
        let hold = valid_until.map_or(hold, |end| hold.min(end.since(verdict.decided_at)));
        self.tokens = u64::from(prefetched);
        self.spent = 0;
        self.basis = Some(Basis { verdict: *verdict, noted_at: sent_at });
        self.spend_by = after(sent_at, hold);
        before
    }

    /// Whether the counter is leased no more: there are no tokens, and were no hits for so long that any would have expired.
    pub(super) fn is_idle(&self, policy: &Policy, now: Instant) -> bool {
        let max_hold = LeaseTiming::of(policy, SyncMode::Leased).max_hold;
        self.tokens == 0 && !self.is_requested && self.demand.age(now) >= max_hold
    }

    /// Tokens that may be spent.
    pub(super) fn held(&self, now: Instant) -> u64 {
        if now < self.spend_by { self.tokens } else { 0 }
    }

    /// Time until which the tokens must be spent, and the number of their grant.
    pub(super) const fn expiry(&self) -> (Instant, u64) {
        (self.spend_by, self.grant)
    }

    /// Takes all unspent tokens.
    pub(super) fn unused(&mut self, policy: &Policy) -> Option<Unused> {
        let amount = NonZeroU64::new(std::mem::take(&mut self.tokens))?;
        Some(Unused { policy: *policy, share: self.share, amount, basis: self.basis? })
    }
}

impl Unused {
    /// Tokens charged with a request that was sent at `sent_at` or later.
    pub(super) fn new(check: &Check, amount: u32, verdict: &Verdict, sent_at: Instant) -> Option<Self> {
        let amount = NonZeroU64::new(u64::from(amount))?;
        let Check { policy, share, .. } = *check;
        Some(Self { policy, share, amount, basis: Basis { verdict: *verdict, noted_at: sent_at } })
    }

    /// The refund of the tokens; `None` when their window has ended.
    pub(super) fn hits(&self, now: Instant) -> Option<Hits> {
        let Basis { verdict, noted_at } = self.basis;
        let made_at = verdict.decided_at;
        let is_over = |end| made_at.plus(now.duration_since(noted_at)) >= end;
        let is_valid = !self.policy.prefetched_until(made_at).is_some_and(is_over);
        is_valid.then_some(Hits::RefundCharge { amount: self.amount, made_at })
    }
}

impl Capacity {
    const fn of(verdict: &Verdict) -> Self {
        let Verdict { used, remaining, .. } = *verdict;
        Self { total: used.saturating_add(remaining), remaining }
    }
}

const fn is_bucket(policy: &Policy) -> bool {
    matches!(policy, Policy::TokenBucket(_))
}
