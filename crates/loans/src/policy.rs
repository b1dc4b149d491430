//! When a region requests a loan, for how much, and what a lender keeps. Limits hold with any policy; this one wastes
//! little.
//!
//! - A *long* window (longer than a loan) runs short when what is left lasts for about a second; then it requests
//!   what lasts for five seconds. Its lender keeps 5 % of its share, less towards the window's end.
//! - A short window, a bucket and permits need their rate and one standard deviation, for the borrower and the lender
//!   alike: with different measures, regions of equal load would lend in circles.
//! - A share below [`SMALL_BASE`] moves as a whole: the borrower wants all, and the lender keeps only what is used.
//!
//! The margins assume that hits arrive independently (Poisson), so that the deviation of a count is its root.

use crate::table::RegionName;
use crate::terms::{LOAN_MICROS, LimitKind, Moment, Terms};
use crate::{ledger::Ledger, protocol::Share};

/// Share below which a region requests all and keeps nothing.
pub const SMALL_BASE: u32 = 20;

/// Time for which a loan request is expected to be answered at least, in microseconds; four round trips if they are longer.
pub const MIN_CLAIM_MICROS: u64 = 1_000_000;

/// Time without loan requests after one that brought less than wanted, in microseconds; it doubles with each that brought
/// nothing.
const PAUSE_MICROS: u64 = 500_000;

/// Maximum number of doublings of the pause.
const MAX_DOUBLINGS: u32 = 2;

/// Part of its share that a lender of a long window keeps: one twentieth.
const KEPT_PART: u64 = 20;

/// Effective limits between which a region is content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Below this, the region requests a loan.
    pub floor: u32,
    /// Amount to have after the request.
    pub target: u32,
}

/// The effective limits between which a region with this use and demand is content.
pub fn range(terms: &Terms, now: Moment, used: u32, demand: &Demand) -> Range {
    if terms.base < SMALL_BASE {
        return Range { floor: used.saturating_add(1).min(terms.limit), target: terms.limit };
    }
    let (floor, target) = match terms.kind {
        kind if is_long(kind) => {
            let left = until_window_ends(kind, now);
            let within = |micros: u64| {
                let hits = demand.within(now.micros, micros.min(left));
                u64::from(used) + hits + hits / 5 + 2 * hits.isqrt()
            };
            (within(1_000_000), within(LOAN_MICROS))
        }
        LimitKind::Concurrency { .. } => rate_range(u64::from(used) + demand.within(now.micros, 1_000_000)),
        kind => rate_range(demand.within(now.micros, kind.window_micros())),
    };
    let bounded = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX).min(terms.limit);
    Range { floor: bounded(floor), target: bounded(target) }
}

/// A rate with one deviation, and with 5 % and another one on top.
fn rate_range(hits: u64) -> (u64, u64) {
    let floor = hits + hits.isqrt();
    (floor, floor + floor / 20 + hits.isqrt())
}

/// Amount that the region requests beyond its effective limit; `None` while it is content. `denied` hits were just denied.
pub fn shortage(
    terms: &Terms,
    now: Moment,
    effective: u32,
    usage: u32,
    denied: u32,
    demand: &Demand,
) -> Option<u32> {
    let Range { floor, target } = range(terms, now, usage, demand);
    let lacks = denied > 0 || effective < floor;
    let target = target.max(effective.saturating_add(denied)).min(terms.limit);
    (lacks && target > effective).then(|| target - effective)
}

/// Amount that a region keeps when it lends.
pub fn need(terms: &Terms, now: Moment, used: u32, demand: &Demand) -> u32 {
    if terms.base < SMALL_BASE {
        return used;
    }
    if !is_long(terms.kind) {
        return range(terms, now, used, demand).floor;
    }
    let kept = u64::from(terms.base) / KEPT_PART;
    let part = match terms.kind {
        LimitKind::FixedWindow { .. } => {
            let left = until_window_ends(terms.kind, now) / 1_000;
            kept.saturating_mul(left) / (terms.kind.window_micros() / 1_000)
        }
        _ => kept,
    };
    used.saturating_add(u32::try_from(part).unwrap_or(u32::MAX))
}

/// Whether the region may request more: no request is in flight, and the last one did not bring too little just now.
pub const fn may_request(ledger: &Ledger, now: Moment) -> bool {
    ledger.claim_until <= now.micros
}

/// Whether a loan has to be prolonged, even in a pause; for a request in flight this waits for [`MIN_CLAIM_MICROS`].
pub fn must_renew(ledger: &Ledger, terms: &Terms, now: Moment) -> bool {
    let is_due = now.label > ledger.renew_after(terms, now.label);
    is_due && ledger.last_id + MIN_CLAIM_MICROS <= now.micros
}

/// Microseconds until a loan has to be prolonged; `None` if nothing has to be.
pub fn until_renewal(ledger: &Ledger, terms: &Terms, now: Moment) -> Option<u64> {
    let after = ledger.renew_after(terms, now.label);
    // The window after the one that ends at a label begins at that time.
    let due_at = match terms.kind.label_step() {
        Some(_) => after.checked_mul(1_000_000)?,
        None => after.checked_add(1)?,
    };
    let due_at = due_at.max(ledger.last_id + MIN_CLAIM_MICROS);
    Some(due_at.saturating_sub(now.micros))
}

/// Records a loan request: none follows until it is answered or lost. `round_trip` is the longest to a peer, in
/// microseconds.
pub fn claim(ledger: &mut Ledger, now: Moment, round_trip: u64) {
    ledger.claim_until = now.micros + MIN_CLAIM_MICROS.max(round_trip.saturating_mul(4));
}

/// Records the outcome of a request for `wanted` once all peers have replied or the deadline has passed: without success,
/// the region pauses.
pub fn conclude(ledger: &mut Ledger, now: Moment, wanted: u32, gained: u32) {
    if gained >= wanted {
        ledger.misses = 0;
        ledger.claim_until = now.micros;
        return;
    }
    let doublings = if gained > 0 { 0 } else { ledger.misses.min(MAX_DOUBLINGS) };
    ledger.misses = if gained > 0 { 0 } else { ledger.misses.saturating_add(1).min(MAX_DOUBLINGS) };
    ledger.claim_until = now.micros + (PAUSE_MICROS << doublings);
}

/// Whether a window is longer than a loan.
fn is_long(kind: LimitKind) -> bool {
    let has_window = !matches!(kind, LimitKind::TokenBucket { .. } | LimitKind::Concurrency { .. });
    has_window && kind.window_micros() > LOAN_MICROS
}

/// Time to the end of a fixed window; for ever for others, which have none.
fn until_window_ends(kind: LimitKind, now: Moment) -> u64 {
    match kind {
        LimitKind::FixedWindow { .. } => (now.label * 1_000_000).saturating_sub(now.micros),
        _ => u64::MAX,
    }
}

/// Length of a period in microseconds.
const PERIOD_MICROS: u64 = 2_000_000;

/// Hits of this period of two seconds and of the one before: their weighted sum is a moving average, as in a sliding
/// window. For permits, only denied ones are counted, as held ones are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Number of the period since the epoch.
    pub period: u32,
    /// Hits in it.
    pub count: u32,
    /// Hits in the one before.
    pub previous: u32,
}

impl Demand {
    /// Counts hits.
    pub fn add(&mut self, micros: u64, hits: u32) {
        *self = self.at(micros);
        self.count = self.count.saturating_add(hits);
    }

    /// Hits of the last two seconds.
    pub fn rate(&self, micros: u64) -> u64 {
        let Self { count, previous, .. } = self.at(micros);
        let left = PERIOD_MICROS - micros % PERIOD_MICROS;
        u64::from(previous) * left / PERIOD_MICROS + u64::from(count)
    }

    /// Hits that arrive in `span` microseconds at this rate.
    pub fn within(&self, micros: u64, span: u64) -> u64 {
        // In milliseconds, so that the product is exact in Lua.
        self.rate(micros).saturating_mul(span / 1_000) / (PERIOD_MICROS / 1_000)
    }

    /// The counts as of a time. After a step back of the clock they stay.
    fn at(&self, micros: u64) -> Self {
        let period = u32::try_from(micros / PERIOD_MICROS).unwrap_or(u32::MAX);
        match period.saturating_sub(self.period) {
            0 => *self,
            1 => Self { period, count: 0, previous: self.count },
            _ => Self { period, ..Self::default() },
        }
    }
}

/// Divides a loan request: prolongs what each peer lent as far as the region still needs it, and splits `want` by what the
/// peers last reported as spare, but at least evenly. `target` is the effective limit that the region wants to have.
pub fn shares<'a>(
    ledger: &Ledger,
    terms: &Terms,
    now: Moment,
    target: u32,
    peers: impl Iterator<Item = &'a RegionName>,
) -> Vec<Share> {
    let peers: Vec<&RegionName> = peers.collect();
    let count = u64::try_from(peers.len()).unwrap_or(u64::MAX).max(1);
    let want = u64::from(target.saturating_sub(ledger.effective(terms, now.label)));
    let own = u64::from(terms.base).saturating_sub(ledger.lent(now.label));
    let mut to_hold = u64::from(target).saturating_sub(own);
    let spare_of = |peer: &RegionName| ledger.account(peer).map_or(0, |account| u64::from(account.spare));
    let spare: u64 = peers.iter().map(|peer| spare_of(peer)).sum();
    let mut shares = Vec::with_capacity(peers.len());
    for peer in peers {
        let borrowed = ledger.account(peer).map_or(0, |account| u64::from(account.borrowed_at(now.label)));
        let hold = borrowed.min(to_hold);
        to_hold -= hold;
        let part = (want * spare_of(peer)).checked_div(spare).unwrap_or(0);
        let part = if terms.base < SMALL_BASE { want } else { part.max(want.div_ceil(count)) };
        let bounded = |amount| u32::try_from(amount).unwrap_or(u32::MAX);
        if hold > 0 || part > 0 {
            shares.push(Share { peer: peer.clone(), hold: bounded(hold), want: bounded(part) });
        }
    }
    shares
}

/// The request that calls back up to `amount` of what this region has lent, to serve another region.
pub fn recall<'a>(
    ledger: &Ledger,
    now: Moment,
    amount: u32,
    peers: impl Iterator<Item = &'a RegionName>,
) -> Vec<Share> {
    let share = |peer: &RegionName| {
        let account = ledger.account(peer)?;
        let want = account.lent_at(now.label).min(amount);
        (want > 0).then(|| Share { peer: peer.clone(), hold: account.borrowed_at(now.label), want })
    };
    peers.filter_map(share).collect()
}
