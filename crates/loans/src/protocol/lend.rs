//! The lender's answer.

use super::{Exchange, Ignored, Raise, Usage, level, lower_bookings, raised, settle};
use crate::fault::{Fault, is_injected};
use crate::ledger::{Account, Ledger, Loan, MAX_BORROWED, MAX_LENT};
use crate::message::{Holding, LoanRequest, Reply};
use crate::table::RegionName;
use crate::terms::{Moment, Terms};

/// Time by which the number of a loan request may be ahead of the lender's clock, in microseconds.
const MAX_AHEAD_MICROS: u64 = 3_600_000_000;

/// Number of steps in which a loan is made smaller.
const STEPS: u32 = 16;

/// Time after which a loan request without a reply is taken to be lost, in microseconds.
const REPLY_TIMEOUT_MICROS: u64 = 2_000_000;

/// Answer to a loan request, and what the lender has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lent {
    /// Message to the borrower.
    pub reply: Reply,
    /// Time at which the bucket will be full, in microseconds.
    pub full_at: u64,
    /// Amount by which the loan falls short and that this region has lent to others: to be recalled from them.
    pub recall: u32,
}

/// Answers the loan request of `peer`.
///
/// # Errors
/// [`Ignored`] for a message that must not be processed; the ledger is unchanged.
pub fn lend(
    ledger: &mut Ledger,
    terms: &Terms,
    now: Moment,
    usage: Usage,
    peer: &RegionName,
    request: &LoanRequest,
) -> Result<Lent, Ignored> {
    let mut exchange = Exchange { ledger, terms, now, usage, peer };
    exchange.check(request)?;
    let ledger = &mut *exchange.ledger;
    let full_at = settle(ledger, terms, now, usage.full_at);
    let before = ledger.effective(terms, now.label);
    let account = ledger.open(peer).ok_or(Ignored::Full)?;
    account.seen = request.id;
    let held = |loan: &Loan| request.have.iter().find(|held| held.id == loan.id);
    let from = if is_injected(Fault::AbsentFreedAtOnce) { 0 } else { request.label };
    lower_bookings(account, now.label, from, |loan| held(loan).map_or(0, |held| held.amount));
    let after_reconcile = ledger.effective(terms, now.label);
    let full_at = raised(terms.kind, full_at, now.micros, Raise::empty(before, after_reconcile));
    let reserve = if is_injected(Fault::LentBeforeHits) { 0 } else { usage.reserve };
    let level = level(terms.kind, full_at.max(now.micros).saturating_add(reserve), now.micros);
    let returned = exchange.give_back(request.want);
    // Ends that are times count from the receipt, whatever the borrower's clock shows.
    let is_time = terms.kind.label_step().is_some();
    let from = if is_time { request.label.max(now.label) } else { now.label };
    let effective = is_injected(Fault::StaleEffective).then_some(after_reconcile);
    let amount = request.hold.saturating_add(request.want - returned);
    let booking = Booking { effective, id: request.id, amount, from };
    let (amount, added) = exchange.book(booking);

    let ledger = exchange.ledger;
    let spare = ledger.effective(terms, now.label).saturating_sub(usage.kept());
    let lent = u32::try_from(ledger.lent(now.label)).unwrap_or(u32::MAX);
    let lent_to_peer = ledger.account(peer).map_or(0, |account| account.lent_at(now.label));
    let recall = (booking.amount - amount).min(lent - lent_to_peer);
    let (have, resolved) = standing(ledger, peer);
    let reply = Reply {
        id: request.id,
        label: now.label,
        from: if is_time { from } else { 0 },
        amount,
        added,
        level,
        have,
        resolved,
        spare,
    };
    Ok(Lent { reply, full_at, recall })
}

impl Exchange<'_> {
    fn check(&self, request: &LoanRequest) -> Result<(), Ignored> {
        let Self { ledger, terms, now, peer, .. } = self;
        if request.have.len() > MAX_BORROWED {
            return Err(Ignored::Long);
        }
        if request.id > now.micros + MAX_AHEAD_MICROS {
            return Err(Ignored::Ahead);
        }
        if terms.kind.max_skew().is_some_and(|skew| request.label.abs_diff(now.label) > skew) {
            return Err(Ignored::Skewed);
        }
        match ledger.account(peer) {
            Some(account) if request.id <= account.seen && !is_injected(Fault::ReplayedRequest) => {
                Err(Ignored::Replayed)
            }
            _ => Ok(()),
        }
    }

    /// Cuts what this region borrowed from the peer by at most `want`, never below what it keeps, and returns by how much.
    fn give_back(&mut self, want: u32) -> u32 {
        let Self { ledger, now, usage, .. } = self;
        let effective = ledger.effective(self.terms, now.label);
        let spare = effective.saturating_sub(usage.kept());
        let Some(account) = ledger.accounts.get_mut(self.peer) else { return 0 };
        if usage.used <= effective {
            // All hits of loans that have ended are within the region's own limit.
            account.borrowed.retain(|loan| loan.until >= now.label);
        }
        // While a request to that peer is in flight, this region itself is short.
        let is_in_flight = account.outstanding != 0 && now.micros < account.sent_at + REPLY_TIMEOUT_MICROS;
        let borrowed = account.borrowed_at(now.label);
        let amount = if is_in_flight { 0 } else { borrowed.min(spare).min(want) };
        if amount > 0 {
            cut(account, now.label, borrowed - amount);
        }
        amount
    }

    /// Books as much of a loan as this region can spare, and returns its amount, and by how much the limit fell.
    fn book(&mut self, booking: Booking) -> (u32, u32) {
        let Self { ledger, terms, now, usage, .. } = self;
        let effective = u64::from(booking.effective.unwrap_or_else(|| ledger.effective(terms, now.label)));
        let lent = ledger.lent(now.label);
        let Some(account) = ledger.accounts.get_mut(self.peer) else { return (0, 0) };
        let old = account.lent_at(now.label);
        // What the region has beyond its own need, with what the peer has of it already.
        let available = (effective + u64::from(old)).saturating_sub(usage.kept().into());
        // Only the region's own share is lent.
        let own = u64::from(terms.base).saturating_sub(lent - u64::from(old));
        let amount = u64::from(booking.amount).min(available).min(own);
        let amount = match u32::try_from(amount).unwrap_or(u32::MAX) {
            // The borrower lists each smaller loan until its hits have expired: few steps need few entries.
            less if less < old => less - less % (terms.base / STEPS).max(1),
            amount => amount,
        };
        if amount == 0 || account.lent.len() >= MAX_LENT {
            return (0, 0);
        }
        let until = booking.from.saturating_add(terms.kind.booking_span());
        account.lent.push(Loan { id: booking.id, amount, from: 0, until });
        (amount, amount.saturating_sub(old))
    }
}

/// Loans that this region has of a peer, and the number of the last request that brings no more.
fn standing(ledger: &Ledger, peer: &RegionName) -> (Vec<Holding>, u64) {
    let Some(account) = ledger.account(peer) else { return (Vec::new(), ledger.last_id) };
    let have = account.borrowed.iter().map(|loan| Holding { id: loan.id, amount: loan.amount }).collect();
    let resolved = match account.outstanding {
        0 => ledger.last_id,
        outstanding => outstanding - 1,
    };
    (have, resolved)
}

/// Lowers all borrowed loans that have not ended to at most `left`.
pub(super) fn cut(account: &mut Account, label: u64, left: u32) {
    for loan in account.borrowed.iter_mut().filter(|loan| loan.until >= label) {
        loan.amount = loan.amount.min(left);
    }
    account.borrowed.retain(|loan| loan.amount > 0);
}

#[derive(Clone, Copy)]
struct Booking {
    /// Effective limit from before the returns; only with a fault.
    effective: Option<u32>,
    id: u64,
    amount: u32,
    from: u64,
}
