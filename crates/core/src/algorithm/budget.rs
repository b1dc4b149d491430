//! Budgets: fixed windows in which a request reserves hits before it uses them.
//!
//! A reservation passes if what was used in the window, what others hold and its own hits are within the limit. It is held
//! under a lease until the lease is settled: then the held hits return, and the hits that were used count in the window of
//! that time, within the limit or not. A lease that is settled again changes nothing, and one that the counter does not
//! have, because it was reserved in another store, counts in full, once. To settle without usage is to leave the
//! reserved hits to [`Unsettled`], and so is the end of a lease that was never settled. If that charges them, the lease is
//! remembered for one more time to live at least: when it is settled late, the charge is replaced by what was used, as far
//! as its window lasts; in a later one, only what was used beyond the charge counts.
//!
//! A lease ends at a whole second, at most one second before its time to live has passed. Leases end in the order in which
//! they were reserved: one with a shorter time to live than those before it ends with them. Settled leases are remembered
//! until they would have ended. A counter with more than [`MAX_LEASES`] of all kinds ends the oldest ones early, and forgets
//! them.
//!
//! To reserve under a known lease changes nothing. It passes while the lease holds at least as many hits.
//!
//! Leases that are due end with the next call: all of them, if that is every lease of the counter, they count alike, and none
//! is to be remembered; otherwise [`MAX_ENDED`] at most, and a lease that the call names. What others hold is held until a later
//! call.

use std::{num::NonZeroU32, time::Duration};

use super::{
    Charging, FixedWindow, LastVerdict, Lease, LeaseState, Ledger, LedgerSummary, LimitAlgorithm,
    MAX_STEP_BACK_WINDOWS, Parameters, Reserve, StateSummary, Unsettled, Verdict,
};
use crate::saturating::{Count, Seconds};
use crate::{clock::Timestamp, descriptor::Hits, lease::LeaseId, quota::Quota};

/// Maximum number of leases of a counter, open or settled: 0.1 kB each in Redis.
pub const MAX_LEASES: usize = 65_536;

/// Number of leases from which on a call leaves further ones to the next call: in Redis they take some 3 µs each, in which
/// no other limit is decided, so that a command ends no more in all of its budgets.
const MAX_ENDED: usize = 500;

/// Bit from which on the second parameter of the script has the time to live of leases, in seconds.
pub const TTL_BIT: u32 = 26;

/// Bit from which on that parameter has the operation.
pub const OPERATION_BIT: u32 = 46;

/// Bit of that parameter by which a lease without a known usage is charged.
pub const CHARGES_BIT: u32 = 49;

/// Time after which a request is repeated that only the hits of open leases deny.
const SETTLE_DELAY: Duration = Duration::from_secs(1);

/// Terms where none are given, which no rule has.
const DEFAULT_TERMS: Reserve =
    Reserve { ttl: NonZeroU32::MIN, unsettled: Unsettled::Charge, add: 0, cap: None };

/// A fixed window with reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub(super) window: FixedWindow,
    pub(super) reserve: Reserve,
}

impl Budget {
    /// End of the time to live that begins at a second.
    const fn end_of(&self, second: u32) -> u32 {
        second.saturating_add(self.reserve.ttl.get())
    }

    fn admits(&self, ledger: &Ledger, hits: impl Into<Count>) -> bool {
        ledger.used + ledger.held + hits <= self.window.limit
    }

    fn settle(&self, ledger: &mut Ledger, now: Timestamp, lease: LeaseId, used: u64) {
        let Some(known) = ledger.leases.get_mut(&lease) else {
            if used > 0 {
                ledger.charge(used);
                self.insert(ledger, now, lease, LeaseState::Settled);
            }
            return;
        };
        let before = known.state;
        match before {
            LeaseState::Open(held) => {
                known.state = LeaseState::Settled;
                ledger.held -= held;
                ledger.charge(match (used, self.reserve.unsettled) {
                    (0, Unsettled::Charge) => held,
                    (0, Unsettled::Release) => 0,
                    (used, _) => used,
                });
            }
            LeaseState::Charged { hits, window } if used > 0 => {
                known.state = LeaseState::Settled;
                // Hits of other windows are of other requests.
                let returned = if window == ledger.ends { hits } else { hits.min(used) };
                ledger.charge(used);
                ledger.used -= returned;
            }
            LeaseState::Charged { .. } | LeaseState::Settled => {}
        }
    }

    fn insert(&self, ledger: &mut Ledger, now: Timestamp, id: LeaseId, state: LeaseState) {
        if ledger.batched >= MAX_LEASES {
            self.end_batch(ledger, now);
        }
        ledger.push(id, self.end_of(now.seconds()), state);
    }

    /// Ends the oldest leases, and returns their number.
    fn end_batch(&self, ledger: &mut Ledger, now: Timestamp) -> usize {
        let Some(batch) = ledger.batches.pop_front() else { return 0 };
        ledger.batched = ledger.batched.saturating_sub(batch.leases.len());
        for id in &batch.leases {
            // Another one of the same name may have been reserved since a cancelled one.
            self.end_lease(ledger, now, *id, |lease| lease.until == batch.until);
        }
        batch.leases.len()
    }

    /// Ends a lease. One that was charged is remembered, unless it ends early.
    fn end_lease(
        &self,
        ledger: &mut Ledger,
        now: Timestamp,
        id: LeaseId,
        is_due: impl FnOnce(&Lease) -> bool,
    ) {
        let Some(Lease { until, state }) = ledger.leases.get(&id).copied().filter(is_due) else { return };
        ledger.leases.remove(&id);
        let LeaseState::Open(held) = state else { return };
        ledger.held -= held;
        let counts = self.counts(ledger, until);
        ledger.charge(if counts { held } else { 0 });
        if self.is_remembered(until, now) {
            let window = if counts { ledger.ends } else { 0 };
            ledger.push(id, self.end_of(now.seconds()), LeaseState::Charged { hits: held, window });
        }
    }

    /// Whether a lease that ended at this time is charged to the window. What ended before it counts no more.
    fn counts(&self, ledger: &Ledger, until: u32) -> bool {
        self.reserve.unsettled == Unsettled::Charge
            && Seconds(until) >= Seconds(ledger.ends) - self.window.window.get()
    }

    /// Whether a lease with this end, of which hits are charged, is remembered.
    fn is_remembered(&self, until: u32, now: Timestamp) -> bool {
        let is_charged = self.reserve.unsettled == Unsettled::Charge;
        is_charged && until <= now.seconds() && self.end_of(until) > now.seconds()
    }

    /// Ends the leases that are due.
    fn end_leases(&self, ledger: &mut Ledger, now: Timestamp, hits: Hits) {
        let is_due = |until: u32| until <= now.seconds();
        let Some((first, last)) = ledger.batches.front().zip(ledger.batches.back()) else { return };
        let (count_now, until) = (self.counts(ledger, first.until), last.until);
        let is_remembered = ledger.held > 0 && self.is_remembered(until, now);
        if is_due(until) && count_now == self.counts(ledger, until) && !is_remembered {
            ledger.charge(if count_now { ledger.held.0 } else { 0 });
            *ledger = Ledger { ends: ledger.ends, used: ledger.used, ..Ledger::default() };
            return;
        }
        if let Hits::Acquire { lease, .. } | Hits::Release(lease) | Hits::Settle { lease, .. } = hits {
            self.end_lease(ledger, now, lease, |lease| is_due(lease.until));
        }
        let mut ended = 0_usize;
        while ended < MAX_ENDED && ledger.batches.front().is_some_and(|batch| is_due(batch.until)) {
            ended = ended.saturating_add(self.end_batch(ledger, now));
        }
    }

    /// Begins the window of `now`, and ends the leases that are due.
    fn advance(&self, ledger: &mut Ledger, now: Timestamp, hits: Hits) {
        let (ends, length) = (Seconds(self.window.end_of_window(now)), Seconds(self.window.window.get()));
        let last_ends = ends + length * MAX_STEP_BACK_WINDOWS;
        ledger.ends = match ledger.ends {
            // An unused window leaves nothing.
            known if known <= now.seconds() || ledger.used == 0 => {
                ledger.used = Count(0);
                ends.0
            }
            known if last_ends >= known => known.max(ends.0),
            // The clock was ahead.
            _ => (ends + length).0,
        };
        self.end_leases(ledger, now, hits);
    }
}

impl LimitAlgorithm for Budget {
    type State = Ledger;

    fn nearest(quota: Quota, parameters: &Parameters) -> Self {
        Self {
            window: FixedWindow::nearest(quota, &Parameters::default()),
            reserve: parameters.reserve.unwrap_or(DEFAULT_TERMS),
        }
    }

    fn common_parameters(&self) -> Parameters {
        Parameters { reserve: Some(self.reserve), ..Parameters::default() }
    }

    fn limit(&self) -> u64 {
        self.window.limit
    }

    fn window_end(&self, now: Timestamp) -> Option<u32> {
        self.window.window_end(now)
    }

    fn prefetched_until(&self, _now: Timestamp) -> Option<Timestamp> {
        None
    }

    fn apply(&self, ledger: &mut Ledger, now: Timestamp, hits: Hits, _charging: Charging) -> bool {
        self.advance(ledger, now, hits);
        match hits {
            Hits::Peek => return self.admits(ledger, 0),
            Hits::Charge(amount) => {
                let admitted = self.admits(ledger, amount.get());
                ledger.charge(if admitted { amount.get() } else { 0 });
                return admitted;
            }
            Hits::Overdraw(amount) => {
                ledger.charge(amount.get());
                return self.admits(ledger, 0);
            }
            Hits::Acquire { amount, lease } => {
                if let Some(known) = ledger.leases.get(&lease) {
                    return known.holds(amount);
                }
                let admitted = self.admits(ledger, amount.get());
                if admitted {
                    ledger.held += amount.get();
                    self.insert(ledger, now, lease, LeaseState::Open(amount.get()));
                }
                return admitted;
            }
            Hits::Refund(amount) => ledger.used -= amount.get(),
            Hits::RefundCharge { amount, made_at } => {
                if self.window.end_of_window(made_at) == ledger.ends {
                    ledger.used -= amount.get();
                }
            }
            Hits::Release(lease) => ledger.cancel(lease),
            Hits::Settle { lease, used } => self.settle(ledger, now, lease, used),
        }
        true
    }

    fn passes(&self, ledger: &mut Ledger, now: Timestamp, earlier: u64, hits: Hits) -> Option<bool> {
        self.advance(ledger, now, hits);
        Some(match hits {
            Hits::Acquire { amount, lease } if let Some(known) = ledger.leases.get(&lease) => {
                known.holds(amount)
            }
            hits => self.admits(ledger, Count(earlier) + hits.charged()),
        })
    }

    fn summary(&self, ledger: &Ledger, _now: Timestamp, hits: Hits) -> StateSummary {
        let has_conflict = match hits {
            Hits::Acquire { amount, lease } => {
                ledger.leases.get(&lease).is_some_and(|known| !known.holds(amount))
            }
            _ => false,
        };
        let (used, held, ends) = (ledger.used.0, ledger.held.0, ledger.ends);
        StateSummary::Ledger(LedgerSummary { used, held, ends, has_conflict })
    }

    fn verdict(&self, of: StateSummary, now: Timestamp, hits: Hits, admitted: bool, _: Charging) -> Verdict {
        let limit = self.window.limit;
        let LedgerSummary { used, held, ends, has_conflict } = of.ledger();
        let spent = Count(used) + held;
        let left = Timestamp::from_seconds(ends).since(now);
        let retry_after = match admitted {
            true => Duration::ZERO,
            false if has_conflict || hits.charged() > limit => Duration::MAX,
            false if Count(used) + hits.charged() > limit => left,
            // A lease may be settled at any moment.
            false => left.min(SETTLE_DELAY),
        };
        // Hits that do not pass count nowhere.
        let wanted = if hits.is_overdraft() { 0 } else { hits.charged() };
        let over = if admitted || has_conflict { 0 } else { (spent + wanted - limit).0 };
        Verdict {
            admitted,
            remaining: (Count(limit) - spent).0,
            reset_after: left,
            retry_after,
            used,
            held,
            over: over.min(hits.charged()),
            ..Verdict::empty(now)
        }
    }

    fn expires_at(&self, ledger: &Ledger) -> u32 {
        let window = if ledger.used > 0 { ledger.ends } else { 0 };
        let Some(last) = ledger.batches.back() else { return window };
        let end = Timestamp::from_seconds(last.until);
        // Held hits may count until the end of the window in which their lease ends.
        let may_count = ledger.held > 0 && self.reserve.unsettled == Unsettled::Charge;
        let remembered = match may_count {
            true => self.window.end_of_window(end).max(self.end_of(last.until)),
            false => last.until,
        };
        remembered.max(window)
    }

    /// Limit in hits, and the other parameters in one number: the window in seconds (26 bits), the time to live in seconds
    /// (20 bits), three bits for the operation, and whether a lease without a known usage is charged.
    fn script_parameters(&self, store_time: impl FnOnce() -> Timestamp) -> [i64; 2] {
        let [limit, window] = self.window.script_parameters(store_time);
        let charges = i64::from(self.reserve.unsettled == Unsettled::Charge);
        // Disjoint bits: a budget has no calendar, whose window would be negative.
        [limit, window | i64::from(self.reserve.ttl.get()) << TTL_BIT | charges << CHARGES_BIT]
    }

    fn with_limit(self, limit: u64, window: Duration) -> Self {
        Self { window: self.window.with_limit(limit, window), ..self }
    }

    fn tail(&self) -> Duration {
        self.window.tail()
    }

    fn after(&self, whole: &Self, last: &LastVerdict, instances: NonZeroU32) -> Option<Ledger> {
        let [ends, used, _] = self.window.after(&whole.window, last, instances)?;
        Some(Ledger { ends, used: Count(used.into()), ..Ledger::default() })
    }

    fn expected_hits(&self, used: u64, from: Timestamp, elapsed: Duration) -> u64 {
        self.window.expected_hits(used, from, elapsed)
    }
}
