//! Budgets: fixed windows in which a request reserves hits before it uses them.
//!
//! A reservation passes if what was used in the window, what others hold and its own hits are within the limit. It is held
//! under a lease until the lease is settled: then the held hits return, and the hits that were used count in the window of
//! that time, within the limit or not. A lease that is settled again changes nothing, and one that the counter does not
//! have, because it has ended or was reserved in another store, counts in full, once. To settle without usage is to leave the
//! reserved hits to [`Unsettled`], and so is the end of a lease that was never settled.
//!
//! A lease ends at a whole second, at most one second before its time to live has passed. Leases end in the order in which
//! they were reserved: one with a shorter time to live than those before it ends with them. Settled leases are remembered
//! until they would have ended. A counter with more than [`MAX_LEASES`] of both kinds ends the oldest ones early.

use std::{
    collections::{HashMap, VecDeque},
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use smallvec::SmallVec;

use super::{FixedWindow, LastVerdict, MAX_STEP_BACK_WINDOWS, Verdict};
use crate::{clock::Timestamp, descriptor::Hits, lease::LeaseId};

/// Maximum number of leases of a counter, open or settled: 0.1 kB each in Redis.
pub const MAX_LEASES: usize = 65_536;

/// Leases that end at the same time in one batch at most: in Redis, an element of a compact hash.
const MAX_BATCH: usize = 7;

/// Maximum number of used or held hits, exact in a Lua number.
const MAX_COUNT: u64 = (1 << 53) - 1;

/// Number of ten thousandths in a whole.
const WHOLE: u64 = 10_000;

/// Effect of a lease that ends, or is settled, without a known usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unsettled {
    /// The reserved hits count as used.
    #[default]
    Charge,
    /// The reserved hits return.
    Release,
}

impl Unsettled {
    /// Every effect.
    pub const ALL: [Self; 2] = [Self::Charge, Self::Release];

    /// Value of the key.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Release => "release",
        }
    }
}

/// Terms of the reservations of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// Time after which a lease ends by itself, in seconds.
    pub ttl: NonZeroU32,
    /// Effect of a lease without a known usage.
    pub unsettled: Unsettled,
    /// Hits that are reserved beyond those of the request.
    pub add: u32,
    /// Maximum share of the limit that one reservation takes, in ten thousandths.
    pub cap: Option<NonZeroU32>,
}

/// A fixed window with reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    window: FixedWindow,
    reserve: Reserve,
}

/// State of a counter with reservations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// End of the window, in seconds since the epoch.
    ends: u32,
    /// Hits that were used in it.
    used: u64,
    /// Hits that open leases hold.
    held: u64,
    leases: HashMap<LeaseId, Lease>,
    /// The leases in the order of their ends. A lease that was cancelled is still in it.
    batches: VecDeque<Batch>,
    /// Number of leases in `batches`.
    batched: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    /// Its end, in seconds since the epoch.
    until: u32,
    /// Hits that it holds; `None` once settled.
    held: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Batch {
    until: u32,
    leases: SmallVec<[LeaseId; MAX_BATCH]>,
}

/// Summary of a ledger after a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerSummary {
    /// Hits that were used in the window.
    pub used: u64,
    /// Hits that open leases hold.
    pub held: u64,
    /// End of the window, in seconds since the epoch.
    pub ends: u32,
}

impl Reserve {
    /// Time after which a lease ends by itself.
    pub const fn lease_ttl(&self) -> Duration {
        Duration::from_secs(self.ttl.get() as u64)
    }

    /// The maximum share of the limit, in percent.
    #[allow(clippy::float_arithmetic)] // Shown to people.
    pub fn cap_percent(&self) -> Option<f64> {
        self.cap.map(|cap| f64::from(cap.get()) / 100.0)
    }

    /// Hits that a request of `hits` reserves of a limit: with those to add, and at most the share of the limit.
    pub fn amount(&self, hits: NonZeroU64, limit: u64) -> NonZeroU64 {
        self.capped(hits.saturating_add(self.add.into()), limit)
    }

    /// Hits that one reservation takes of a limit, of the `wanted` ones.
    pub fn capped(&self, wanted: NonZeroU64, limit: u64) -> NonZeroU64 {
        let Some(cap) = self.cap else { return wanted.min(NonZeroU64::new(Hits::MAX).unwrap_or(wanted)) };
        let most = limit.saturating_mul(cap.get().into()).checked_div(WHOLE).unwrap_or(limit);
        wanted.min(NonZeroU64::new(most).unwrap_or(NonZeroU64::MIN))
    }
}

impl Budget {
    pub(super) const fn new(window: FixedWindow, reserve: Reserve) -> Self {
        Self { window, reserve }
    }

    pub(super) const fn with_limit(self, limit: u64) -> Self {
        Self { window: self.window.with_limit(limit), ..self }
    }

    pub(super) fn shared_by(self, instances: NonZeroU32) -> Self {
        Self { window: self.window.shared_by(instances), ..self }
    }

    pub(super) const fn window(&self) -> &FixedWindow {
        &self.window
    }

    /// Terms of the reservations.
    pub const fn reserve(&self) -> Reserve {
        self.reserve
    }

    /// Limit in hits, and the other parameters in one number: the window in seconds (26 bits), the time to live in seconds
    /// (20 bits), three bits for the operation, and whether a lease without a known usage is charged.
    pub fn script_parameters(&self) -> [i64; 2] {
        // No window of a calendar, which would need the store's time.
        let [limit, window] = self.window.script_parameters(|| Timestamp::from_micros(0));
        let charges = i64::from(self.reserve.unsettled == Unsettled::Charge);
        let terms = i64::from(self.reserve.ttl.get()).saturating_add(charges << 23);
        [limit, window.saturating_add(terms << 26)]
    }

    /// State of this share of the `whole` limit after its last verdict.
    pub(super) fn after(&self, whole: &Self, last: &LastVerdict, instances: NonZeroU32) -> Ledger {
        let [ends, used, _] = self.window.after(&whole.window, last, instances);
        Ledger { ends, used: used.into(), ..Ledger::default() }
    }

    /// Time from which the ledger equals an unused one, in seconds since the epoch: what a lease holds may count until the
    /// end of the window in which it ends.
    pub(super) fn expires_at(&self, ledger: &Ledger) -> u32 {
        let window = if ledger.used > 0 { ledger.ends } else { 0 };
        let Some(last) = ledger.batches.back() else { return window };
        let end = Timestamp::from_seconds(last.until);
        let may_count = ledger.held > 0 && self.reserve.unsettled == Unsettled::Charge;
        if may_count { self.window.window_end(end).max(window) } else { last.until.max(window) }
    }

    /// Whether `hits` would pass at `now` after `earlier` hits of the same request.
    pub(super) fn passes(&self, ledger: &mut Ledger, now: Timestamp, earlier: u64, hits: Hits) -> bool {
        self.advance(ledger, now);
        match hits {
            Hits::Acquire { lease, .. } if ledger.leases.contains_key(&lease) => true,
            hits => self.admits(ledger, earlier.saturating_add(hits.charged())),
        }
    }

    fn admits(&self, ledger: &Ledger, hits: u64) -> bool {
        ledger.used.saturating_add(ledger.held).saturating_add(hits) <= self.window.limit()
    }

    pub(super) fn apply(&self, ledger: &mut Ledger, now: Timestamp, hits: Hits) -> bool {
        self.advance(ledger, now);
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
                if ledger.leases.contains_key(&lease) {
                    return true;
                }
                let admitted = self.admits(ledger, amount.get());
                if admitted {
                    ledger.held = ledger.held.saturating_add(amount.get());
                    self.insert(ledger, now, lease, Some(amount.get()));
                }
                return admitted;
            }
            Hits::Refund(amount) => ledger.used = ledger.used.saturating_sub(amount.get()),
            Hits::RefundCharge { amount, made_at } => {
                if self.window.window_end(made_at) == ledger.ends {
                    ledger.used = ledger.used.saturating_sub(amount.get());
                }
            }
            Hits::Release(lease) => ledger.cancel(lease),
            Hits::Settle { lease, used } => self.settle(ledger, now, lease, used),
        }
        true
    }

    fn settle(&self, ledger: &mut Ledger, now: Timestamp, lease: LeaseId, used: u64) {
        let Some(known) = ledger.leases.get_mut(&lease) else {
            if used > 0 {
                ledger.charge(used);
                self.insert(ledger, now, lease, None);
            }
            return;
        };
        let Some(held) = known.held.take() else { return };
        ledger.held = ledger.held.saturating_sub(held);
        ledger.charge(match (used, self.reserve.unsettled) {
            (0, Unsettled::Charge) => held,
            (0, Unsettled::Release) => 0,
            (used, _) => used,
        });
    }

    fn insert(&self, ledger: &mut Ledger, now: Timestamp, id: LeaseId, held: Option<u64>) {
        if ledger.batched >= MAX_LEASES {
            self.end_batch(ledger);
        }
        let until = now.seconds().saturating_add(self.reserve.ttl.get());
        let until = ledger.batches.back().map_or(until, |last| until.max(last.until));
        match ledger.batches.back_mut().filter(|last| last.until == until && last.leases.len() < MAX_BATCH) {
            Some(last) => last.leases.push(id),
            None => ledger.batches.push_back(Batch { until, leases: SmallVec::from_iter([id]) }),
        }
        ledger.batched = ledger.batched.saturating_add(1);
        ledger.leases.insert(id, Lease { until, held });
    }

    /// Ends the oldest leases.
    fn end_batch(&self, ledger: &mut Ledger) {
        let Some(batch) = ledger.batches.pop_front() else { return };
        ledger.batched = ledger.batched.saturating_sub(batch.leases.len());
        let length = u32::try_from(self.window.length().as_secs()).unwrap_or(u32::MAX);
        for id in &batch.leases {
            // Another one of the same name may have been reserved since a cancelled one.
            if ledger.leases.get(id).is_none_or(|lease| lease.until != batch.until) {
                continue;
            }
            let Some(held) = ledger.leases.remove(id).and_then(|lease| lease.held) else { continue };
            ledger.held = ledger.held.saturating_sub(held);
            // What ended before this window counts no more.
            if self.reserve.unsettled == Unsettled::Charge
                && batch.until >= ledger.ends.saturating_sub(length)
            {
                ledger.charge(held);
            }
        }
    }

    /// Begins the window of `now`, and ends the leases that are due.
    fn advance(&self, ledger: &mut Ledger, now: Timestamp) {
        let ends = self.window.window_end(now);
        let length = u32::try_from(self.window.length().as_secs()).unwrap_or(u32::MAX);
        let last_ends = ends.saturating_add(length.saturating_mul(MAX_STEP_BACK_WINDOWS));
        ledger.ends = match ledger.ends {
            // An unused window leaves nothing.
            known if known <= now.seconds() || ledger.used == 0 => {
                ledger.used = 0;
                ends
            }
            known if known <= last_ends => known.max(ends),
            // The clock was ahead.
            _ => ends.saturating_add(length),
        };
        while ledger.batches.front().is_some_and(|batch| batch.until <= now.seconds()) {
            self.end_batch(ledger);
        }
        if ledger.leases.is_empty() && ledger.leases.capacity() > MAX_BATCH {
            ledger.leases.shrink_to_fit();
            ledger.batches.shrink_to_fit();
        }
    }

    /// Returns the verdict of a decision after which the ledger has this summary.
    pub(super) fn verdict(
        &self,
        summary: LedgerSummary,
        now: Timestamp,
        hits: Hits,
        admitted: bool,
    ) -> Verdict {
        let limit = self.window.limit();
        let LedgerSummary { used, held, ends } = summary;
        let spent = used.saturating_add(held);
        let left = Timestamp::from_seconds(ends).since(now);
        let retry_after = match admitted {
            true => Duration::ZERO,
            false if hits.charged() > limit => Duration::MAX,
            false if used.saturating_add(hits.charged()) > limit => left,
            // A lease may be settled at any moment.
            false => left.min(SETTLE_DELAY),
        };
        // Hits that do not pass count nowhere.
        let wanted = if hits.is_overdraft() { 0 } else { hits.charged() };
        let over = if admitted { 0 } else { spent.saturating_add(wanted).saturating_sub(limit) };
        Verdict {
            admitted,
            remaining: limit.saturating_sub(spent),
            reset_after: left,
            retry_after,
            used,
            decaying: 0,
            held,
            over: over.min(hits.charged()),
            decided_at: now,
            ban: None,
        }
    }
}

/// Time after which a request is repeated that only the hits of open leases deny.
const SETTLE_DELAY: Duration = Duration::from_secs(1);

impl Ledger {
    fn charge(&mut self, hits: u64) {
        self.used = self.used.saturating_add(hits).min(MAX_COUNT);
    }

    /// Returns what a lease holds, as though it had not been reserved.
    fn cancel(&mut self, id: LeaseId) {
        if let Some(Lease { held: Some(held), .. }) = self.leases.get(&id).copied() {
            self.held = self.held.saturating_sub(held);
            self.leases.remove(&id);
        }
    }

    /// Number of leases, open or settled.
    pub(super) const fn entries(&self) -> usize {
        self.batched
    }

    pub(super) const fn summary(&self) -> LedgerSummary {
        LedgerSummary { used: self.used, held: self.held, ends: self.ends }
    }
}
