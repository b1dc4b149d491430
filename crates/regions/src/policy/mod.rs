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

mod budget;
mod demand;
mod split;

pub use self::{
    budget::LoanRequestBudgets,
    demand::Demand,
    split::{recall, shares},
};
use crate::{
    ledger::Ledger,
    terms::{Kind, LOAN_MICROS, Moment, Terms},
};

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
            let within = |micros: u64, margin: fn(u64) -> u64| {
                let hits = demand.within(now.micros, micros.min(left));
                u64::from(used).saturating_add(margin(hits))
            };
            let margin =
                |hits: u64| hits.saturating_add(hits / 5).saturating_add(hits.isqrt().saturating_mul(2));
            (within(1_000_000, margin), within(LOAN_MICROS, margin))
        }
        Kind::Concurrency { .. } => {
            let wanted = u64::from(used).saturating_add(demand.within(now.micros, 1_000_000));
            rate_range(wanted)
        }
        kind => rate_range(demand.within(now.micros, kind.window_micros())),
    };
    let bounded = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX).min(terms.limit);
    Range { floor: bounded(floor), target: bounded(target) }
}

/// A rate with one deviation, and with 5 % and another one on top.
fn rate_range(hits: u64) -> (u64, u64) {
    let floor = hits.saturating_add(hits.isqrt());
    (floor, floor.saturating_add(floor / 20).saturating_add(hits.isqrt()))
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
    (lacks && target > effective).then(|| target.saturating_sub(effective))
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
        Kind::FixedWindow { .. } => {
            let left = until_window_ends(terms.kind, now) / 1_000;
            kept.saturating_mul(left).checked_div(terms.kind.window_micros() / 1_000).unwrap_or(0)
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
    is_due && ledger.last_id.saturating_add(MIN_CLAIM_MICROS) <= now.micros
}

/// Microseconds until a loan has to be prolonged; `None` if nothing has to be.
pub fn until_renewal(ledger: &Ledger, terms: &Terms, now: Moment) -> Option<u64> {
    let after = ledger.renew_after(terms, now.label);
    // The window after the one that ends at a label begins at that time.
    let due_at = match terms.kind.label_step() {
        Some(_) => after.checked_mul(1_000_000)?,
        None => after.checked_add(1)?,
    };
    let due_at = due_at.max(ledger.last_id.saturating_add(MIN_CLAIM_MICROS));
    Some(due_at.saturating_sub(now.micros))
}

/// Records a loan request: none follows until it is answered or lost. `round_trip` is the longest to a peer, in
/// microseconds.
pub fn claim(ledger: &mut Ledger, now: Moment, round_trip: u64) {
    ledger.claim_until = now.micros.saturating_add(MIN_CLAIM_MICROS.max(round_trip.saturating_mul(4)));
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
    ledger.claim_until = now.micros.saturating_add(PAUSE_MICROS << doublings);
}

/// Whether a window is longer than a loan.
fn is_long(kind: Kind) -> bool {
    let has_window = !matches!(kind, Kind::TokenBucket { .. } | Kind::Concurrency { .. });
    has_window && kind.window_micros() > LOAN_MICROS
}

/// Time to the end of a fixed window; for ever for others, which have none.
fn until_window_ends(kind: Kind, now: Moment) -> u64 {
    match kind {
        Kind::FixedWindow { .. } => now.label.saturating_mul(1_000_000).saturating_sub(now.micros),
        _ => u64::MAX,
    }
}
