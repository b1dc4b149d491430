//! The borrower's taking of a reply.

use super::{Exchange, Ignored, Raise, Usage, lend::cut, lower_bookings, raised, settle};
use crate::fault::{Fault, is_injected};
use crate::ledger::{Account, Ledger, Loan, MAX_BORROWED};
use crate::terms::{Moment, Terms};
use crate::{message::Reply, table::RegionName};

/// Effect of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Time at which the bucket will be full, in microseconds.
    pub full_at: u64,
    /// Amount by which the effective limit rose: by what was lent and what was returned.
    pub gained: u32,
    /// Whether the reply was to the outstanding request.
    pub is_expected: bool,
}

/// Takes the reply of `peer`: what it returned at any time, and what it lent only once and only if the request is
/// outstanding.
///
/// # Errors
/// [`Ignored`] for a message that must not be processed; the ledger is unchanged.
pub fn take(
    ledger: &mut Ledger,
    terms: &Terms,
    now: Moment,
    usage: Usage,
    peer: &RegionName,
    reply: &Reply,
) -> Result<Taken, Ignored> {
    if reply.have.len() > MAX_BORROWED {
        return Err(Ignored::Long);
    }
    let is_skewed = |skew| reply.label.max(reply.from).abs_diff(now.label) > skew;
    if terms.kind.max_skew().is_some_and(is_skewed) {
        return Err(Ignored::Skewed);
    }
    let mut full_at = settle(ledger, terms, now, usage.full_at);
    let start = ledger.effective(terms, now.label);
    let Some(account) = ledger.accounts.get_mut(peer) else {
        return Ok(Taken { full_at, ..Taken::default() });
    };
    let left = |loan: &Loan| match reply.have.iter().find(|held| held.id == loan.id) {
        Some(held) => held.amount,
        // A loan that the peer may still take is not listed either.
        None if loan.id > reply.resolved => u32::MAX,
        None => 0,
    };
    let from = if is_injected(Fault::ReturnWithoutLabel) { 0 } else { reply.label };
    lower_bookings(account, now.label, from, left);
    let before = ledger.effective(terms, now.label);
    full_at = raised(terms.kind, full_at, now.micros, Raise::empty(start, before));

    let mut exchange = Exchange { ledger, terms, now, usage, peer };
    let is_expected = exchange.borrow(reply);
    let ledger = exchange.ledger;
    let after = ledger.effective(terms, now.label);
    let raise = Raise { before, after, added: reply.added, brought: reply.level };
    full_at = raised(terms.kind, full_at, now.micros, raise);
    Ok(Taken { full_at, gained: after.saturating_sub(start), is_expected })
}

impl Exchange<'_> {
    /// Takes the loan; returns whether it was to the outstanding request.
    fn borrow(&mut self, reply: &Reply) -> bool {
        let Self { ledger, terms, now, usage, .. } = self;
        let effective = ledger.effective(terms, now.label);
        let Some(account) = ledger.accounts.get_mut(self.peer) else { return false };
        let is_expected = account.outstanding != 0 && account.outstanding == reply.id;
        if !is_expected && !is_injected(Fault::LateReply) {
            return false;
        }
        account.outstanding = 0;
        account.spare = reply.spare;
        let amount = reply.amount.min(account.wanted);
        let from = if terms.kind.label_step().is_some() {
            reply.from
        } else if is_injected(Fault::EndFromReceipt) {
            now.micros
        } else {
            account.sent_at
        };
        let until = from.saturating_add(terms.kind.loan_span());
        let is_time = terms.kind.label_step().is_none();
        let loan = Loan { id: reply.id, amount, from: if is_time { 0 } else { from }, until };
        let held = account.borrowed_at(now.label);
        if amount < held {
            // The lender needs it back: all but what is used.
            let unused = effective.saturating_sub(usage.used);
            cut(account, now.label, amount.max(held.saturating_sub(unused)));
        }
        if loan.until < now.label || amount == 0 {
            return true;
        }
        account.borrowed.retain(|old| !loan.replaces(old, now.label));
        make_room(account, now.label);
        if account.borrowed.len() < MAX_BORROWED {
            account.borrowed.push(loan);
        }
        true
    }
}

/// Drops the loan that ends first of those that have not ended and are not the largest now, if there is no room for
/// another one: the effective limit stays, and falls sooner. Loans that have ended must be listed.
fn make_room(account: &mut Account, label: u64) {
    if account.borrowed.len() < MAX_BORROWED {
        return;
    }
    let largest = account.borrowed_at(label);
    let active = account.borrowed.iter().find(|loan| loan.at(label) == largest).copied();
    let others = account.borrowed.iter().filter(|loan| loan.until >= label && Some(**loan) != active);
    let Some(first) = others.min_by_key(|loan| loan.until).copied() else { return };
    account.borrowed.retain(|loan| *loan != first);
}
