//! Transitions of a ledger. Each is one atomic step in the store of its region, and Rust defines it; scripts follow.
//!
//! 1. [`request_loans()`] at the borrower: numbers a loan request, and lists what the region has of each peer.
//! 2. [`lend()`] at the lender: lowers its bookings to what the borrower has, returns what itself borrowed from it, then
//!    books a loan.
//! 3. [`take()`] at the borrower: lowers its bookings by what the lender returned, and takes the loan if the request is
//!    outstanding.
//! 4. [`settle()`], first in each of them: drops what has ended, in order.
//!
//! A message that is lost leaves a booking without a loan until the next request, which does not list it. One that is
//! repeated or late changes nothing: ids rise, and amounts of a loan only fall.
//!
//! The tokens of a bucket are conserved: a new loan brings tokens at the lender's fill, while what returns or ends brings
//! none, so that the lender's fill is diluted. The fill is passed as the time at which the bucket will be full, in
//! microseconds; other algorithms pass 0.

mod lend;
mod take;

pub use self::lend::{Lent, lend};
pub use self::take::{Taken, take};
use crate::fault::{Fault, is_injected};
use crate::ledger::{Account, Ledger, Loan, MAX_BORROWED, MAX_LENT};
use crate::message::{Holding, LoanRequest};
use crate::table::RegionName;
use crate::terms::{LimitKind, Moment, Terms};

/// Use of the counter in this region at the moment of a transition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Hits that count now, as the algorithm counts them, or permits held; 0 for a bucket, whose fill stands for it.
    pub used: u32,
    /// Amount that the region needs itself, by the [`policy`](crate::policy); at least what is used counts.
    pub need: u32,
    /// Time at which the bucket will be full, in microseconds, rounded up; not later than now if it is. 0 for others.
    pub full_at: u64,
    /// Time by which hits may make the bucket full later until the transition takes effect, in microseconds: as much is left
    /// out of the fill that a loan brings. A store that reads and then writes refuses to write after more.
    pub reserve: u64,
}

impl Usage {
    /// Amount that must not be lent or returned.
    const fn kept(&self) -> u32 {
        if self.used > self.need { self.used } else { self.need }
    }
}

/// Message that is not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// A loan request that is not newer than the last one.
    Replayed,
    /// A loan request that is numbered more than an hour ahead of this region's clock.
    Ahead,
    /// Labels that differ more than the clocks of regions may.
    Skewed,
    /// More loans than a region has.
    Long,
    /// No room for another region.
    Full,
}

/// Part of a loan request that goes to one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The region.
    pub peer: RegionName,
    /// Amount of its loans to prolong.
    pub hold: u32,
    /// Amount beyond that.
    pub want: u32,
}

/// Numbers a loan request and returns its message to each region, and when the bucket will be full.
///
/// Replies to earlier requests are stale from here on: the message lists what the region has now, and the lender drops
/// all that is not listed.
pub fn request_loans(
    ledger: &mut Ledger,
    terms: &Terms,
    now: Moment,
    usage: Usage,
    shares: &[Share],
) -> (Vec<(RegionName, LoanRequest)>, u64) {
    let full_at = settle(ledger, terms, now, usage.full_at);
    if usage.used <= ledger.effective(terms, now.label) || is_injected(Fault::FreedInTail) {
        // Loans that have ended, and all of whose hits the region's own limit covers.
        for account in ledger.accounts.values_mut() {
            account.borrowed.retain(|loan| loan.until >= now.label);
        }
    }
    let id = (ledger.last_id + 1).max(now.micros);
    ledger.last_id = id;
    let mut requests = Vec::with_capacity(shares.len());
    for share in shares {
        let Some(account) = ledger.open(&share.peer) else { continue };
        account.outstanding = id;
        account.sent_at = now.micros;
        account.wanted = share.hold.saturating_add(share.want);
        let listed = account.borrowed.iter().map(|loan| Holding { id: loan.id, amount: loan.amount });
        let have = listed.take(MAX_BORROWED).collect();
        let request = LoanRequest { id, label: now.label, hold: share.hold, want: share.want, have };
        requests.push((share.peer.clone(), request));
    }
    (requests, full_at)
}

/// A transition of one region with a peer.
struct Exchange<'l> {
    ledger: &'l mut Ledger,
    terms: &'l Terms,
    now: Moment,
    usage: Usage,
    peer: &'l RegionName,
}

/// Drops the loans that have ended before `now`, and returns when the bucket will be full.
///
/// A borrowed loan stays listed while its hits may count. The ends are processed in their order, since what a bucket
/// refills after one of them is refilled under another limit.
pub fn settle(ledger: &mut Ledger, terms: &Terms, now: Moment, full_at: u64) -> u64 {
    let full_at = match terms.kind {
        LimitKind::TokenBucket { .. } => refill(ledger, terms, now, full_at),
        _ => full_at,
    };
    let tail = terms.kind.tail();
    for account in ledger.accounts.values_mut() {
        account.lent.retain(|loan| loan.until >= now.label);
        account.borrowed.retain(|loan| loan.until.saturating_add(tail) >= now.label);
    }
    full_at
}

/// Lowers the bookings to what is `left` of each by the peer's list, from the label `from` of the peer on: for the windows
/// before, it may have used more.
fn lower_bookings(account: &mut Account, label: u64, from: u64, left: impl Fn(&Loan) -> u32) {
    let mut kept = Vec::with_capacity(MAX_LENT);
    for loan in &account.lent {
        let left = left(loan);
        if loan.amount <= left || loan.until < from {
            kept.push(*loan);
            continue;
        }
        kept.push(Loan { amount: left, ..*loan });
        if from > label {
            kept.push(Loan { until: from - 1, ..*loan });
        }
    }
    kept.retain(|loan| loan.amount > 0);
    if kept.len() <= MAX_LENT {
        account.lent = kept;
    }
}

/// Fill of a bucket after all ends before `now`.
fn refill(ledger: &Ledger, terms: &Terms, now: Moment, full_at: u64) -> u64 {
    let loans = ledger.accounts.values().flat_map(|account| account.lent.iter().chain(&account.borrowed));
    let mut ends: Vec<u64> = loans.map(|loan| loan.until).filter(|until| *until < now.label).collect();
    ends.sort_unstable();
    ends.dedup();
    let mut full_at = full_at;
    for end in ends {
        let next = end + 1;
        let borrowed = |label| u32::try_from(ledger.borrowed(label)).unwrap_or(u32::MAX);
        let returned = borrowed(end).saturating_sub(borrowed(next));
        let before = ledger.effective(terms, end).saturating_sub(returned);
        full_at = raised(terms.kind, full_at, next, Raise::empty(before, ledger.effective(terms, next)));
    }
    full_at
}

/// Level of the bucket at `micros`, rounded down.
fn level(kind: LimitKind, full_at: u64, micros: u64) -> u64 {
    let step = kind.level_micros();
    if step == 0 {
        return 0;
    }
    kind.full_level().saturating_sub(full_at.saturating_sub(micros).div_ceil(step))
}

/// When the bucket will be full, after its effective limit rose from `before` to `after` by an amount of which `added`
/// came with tokens at the level `brought`, and the rest with none.
///
/// The capacity is a time, so that a bucket of twice the limit refills twice as many tokens in the same time. At an equal
/// fill, a changed limit changes the tokens in proportion.
fn raised(kind: LimitKind, full_at: u64, micros: u64, change: Raise) -> u64 {
    let Raise { before, after, added, brought } = change;
    let step = kind.level_micros();
    if step == 0 || after <= before || is_injected(Fault::TokensFromNothing) {
        return full_at;
    }
    let full = kind.full_level();
    let own = level(kind, full_at, micros) * u64::from(before);
    let new = brought.min(full) * u64::from(added.min(after - before));
    let filled = (own + new) / u64::from(after);
    // Rounding never fills.
    full_at.max(micros + (full - filled) * step)
}

/// Rise of an effective limit.
#[derive(Clone, Copy, Debug)]
struct Raise {
    before: u32,
    after: u32,
    added: u32,
    brought: u64,
}

impl Raise {
    /// One without tokens.
    const fn empty(before: u32, after: u32) -> Self {
        Self { before, after, added: 0, brought: 0 }
    }
}
