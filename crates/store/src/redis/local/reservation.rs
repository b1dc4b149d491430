//! Tokens that were charged ahead of their use, and how many to charge.
//!
//! They are charged before they are used, so no more than the limit is ever used. The price is a denial elsewhere while
//! they are held; how rare that is depends on how many are: what this worker needs within a moment, and no more than
//! its share of what remains, divided by a caution. Its share of a window is its own demand in the whole demand, which
//! shows in what the window is charged: so all workers together hold no more than what remains divided by the caution,
//! however many they are. Of a bucket the whole demand does not show, so the caution is larger, and holds for some
//! sixteen workers. Near exhaustion everybody asks Redis each time.

#![allow(clippy::float_arithmetic)] // All of it estimates what is worth while; none of it decides what passes.

use std::{num::NonZeroU64, time::Duration};

use tokio::time::Instant;

use super::demand::{Rate, SharedRate};
use tollgate_core::{
    algorithm::{Policy, Prefetch, Verdict},
    descriptor::Hits,
};

/// How long charges ahead shall last. A bucket owes what refills while it is held, so that is shorter.
const FILL: Duration = Duration::from_millis(100);
const FILL_OF_BUCKETS: Duration = Duration::from_millis(50);

/// The longest time that tokens are held, and the shortest.
const LONGEST_HOLD: Duration = Duration::from_millis(200);
const LONGEST_HOLD_OF_BUCKETS: Duration = Duration::from_millis(100);
const SHORTEST_HOLD: Duration = Duration::from_millis(4);

/// What remains is divided by so much: of a window, and of a bucket, of which the whole demand is not seen.
const CAUTION: f64 = 4.0;
const CAUTION_OF_BUCKETS: f64 = 16.0;

/// A share is told in parts of so many.
const PARTS: f64 = 65_536.0;

/// What a worker holds of one counter, and what it knows of the demand.
#[derive(Debug)]
pub(super) struct Reserve {
    tokens: u64,
    /// When the tokens must be spent.
    spend_by: Instant,
    /// What Redis said when they were charged, apart from them, and how many of them were spent since.
    basis: Option<Basis>,
    spent: u64,
    demand: Rate,
    /// The demand of everybody.
    whole: SharedRate,
    /// Whether Redis was asked for tokens and did not answer yet.
    is_asked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Basis {
    verdict: Verdict,
    /// Not later than it was decided.
    noted_at: Instant,
}

/// Tokens that were not spent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unused {
    pub(super) policy: Policy,
    amount: NonZeroU64,
    basis: Basis,
}

impl Reserve {
    pub(super) fn new(now: Instant) -> Self {
        let demand = Rate::none(now);
        Self {
            tokens: 0,
            spend_by: now,
            basis: None,
            spent: 0,
            demand,
            whole: SharedRate::default(),
            is_asked: false,
        }
    }

    /// Notes that these hits are asked for.
    pub(super) fn expect(&mut self, hits: Hits, now: Instant) {
        self.demand.add(hits.charged(), now);
    }

    /// Lets a charge pass if there are tokens for it.
    pub(super) fn spend(&mut self, hits: Hits, now: Instant) -> Option<Verdict> {
        let Hits::Charge(hits) = hits else { return None };
        let Basis { verdict, noted_at } = self.basis.filter(|_| now < self.spend_by)?;
        self.tokens = self.tokens.checked_sub(hits.get())?;
        self.spent = self.spent.saturating_add(hits.get());
        Some(Verdict {
            admitted: true,
            remaining: verdict.remaining.saturating_sub(u32::try_from(self.spent).unwrap_or(u32::MAX)),
            retry_after: Duration::ZERO,
            used: verdict.used.saturating_add(self.spent),
            over: 0,
            ..verdict.later(now.saturating_duration_since(noted_at))
        })
    }

    /// Takes back that a charge passed.
    pub(super) fn put_back(&mut self, hits: Hits) {
        self.tokens = self.tokens.saturating_add(hits.charged());
        self.spent = self.spent.saturating_sub(hits.charged());
    }

    /// What to charge ahead with the next call, if anything.
    pub(super) fn wish(&mut self, policy: &Policy, now: Instant) -> Option<Prefetch> {
        let demand = self.demand.at(now);
        let most = demand * fill_of(policy).as_secs_f64();
        // As long as nothing was seen of others, everybody would think to be alone.
        let sees_others = is_bucket(policy) || self.whole.per_second() > 0.0;
        if self.is_asked || most < 1.0 || !sees_others {
            return None;
        }
        self.is_asked = true;
        let caution = if is_bucket(policy) { CAUTION_OF_BUCKETS } else { CAUTION };
        let share = demand / self.whole.per_second().max(demand) / caution;
        Some(Prefetch {
            max_tokens: most as u32,
            share: (share * PARTS) as u16,
            hold_millis: u16::try_from(longest_hold(policy).as_millis()).unwrap_or(u16::MAX),
        })
    }

    /// Takes note that a call with a wish failed.
    pub(super) fn was_refused(&mut self) {
        self.is_asked = false;
    }

    /// Takes note of what a call came to that was sent at `sent_at`, at the latest, and of the tokens that were charged
    /// with it. Gives what was left of those before.
    pub(super) fn learn(
        &mut self,
        policy: &Policy,
        verdict: &Verdict,
        reserved: u32,
        sent_at: Instant,
    ) -> Option<Unused> {
        self.is_asked = false;
        self.whole.see(policy, verdict, reserved);
        if reserved == 0 {
            return None;
        }
        let before = self.unused(policy);
        let lasts = 2.0 * f64::from(reserved) / self.demand.at(sent_at).max(1.0);
        let hold = Duration::from_secs_f64(lasts).clamp(SHORTEST_HOLD, longest_hold(policy));
        let counts = policy.reserved_until(verdict.decided_at);
        let hold = counts.map_or(hold, |end| hold.min(end.since(verdict.decided_at)));
        self.tokens = u64::from(reserved);
        self.spent = 0;
        self.basis = Some(Basis { verdict: *verdict, noted_at: sent_at });
        self.spend_by = sent_at.checked_add(hold).unwrap_or(sent_at);
        before
    }

    /// When the tokens must be spent.
    pub(super) const fn spend_by(&self) -> Instant {
        self.spend_by
    }

    /// What is not spent and can't be any more.
    pub(super) fn expired(&mut self, policy: &Policy, now: Instant) -> Option<Unused> {
        (self.spend_by <= now).then(|| self.unused(policy)).flatten()
    }

    /// What is not spent, which then is held no more.
    pub(super) fn unused(&mut self, policy: &Policy) -> Option<Unused> {
        let amount = NonZeroU64::new(std::mem::take(&mut self.tokens))?;
        Some(Unused { policy: *policy, amount, basis: self.basis? })
    }
}

impl Unused {
    /// So many tokens that were charged with a call that was sent at `sent_at`, at the latest.
    pub(super) fn new(policy: &Policy, amount: u32, verdict: &Verdict, sent_at: Instant) -> Option<Self> {
        let amount = NonZeroU64::new(u64::from(amount))?;
        Some(Self { policy: *policy, amount, basis: Basis { verdict: *verdict, noted_at: sent_at } })
    }

    /// What gives it back; nothing when it counts no more.
    pub(super) fn hits(&self, now: Instant) -> Option<Hits> {
        let Basis { verdict, noted_at } = self.basis;
        let made_at = verdict.decided_at;
        let is_over = |end| made_at.plus(now.saturating_duration_since(noted_at)) >= end;
        let counts = !self.policy.reserved_until(made_at).is_some_and(is_over);
        counts.then_some(Hits::RefundCharge { amount: self.amount, made_at })
    }
}

const fn is_bucket(policy: &Policy) -> bool {
    matches!(policy, Policy::TokenBucket(_))
}

fn fill_of(policy: &Policy) -> Duration {
    if is_bucket(policy) { FILL_OF_BUCKETS } else { FILL }
}

fn longest_hold(policy: &Policy) -> Duration {
    if is_bucket(policy) { LONGEST_HOLD_OF_BUCKETS } else { LONGEST_HOLD }
}
