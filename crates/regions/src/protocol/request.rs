//! The borrower's loan request.

use super::{Usage, settle};
use crate::{
    fault::{Fault, is_injected},
    ledger::{Ledger, MAX_BORROWED},
    message::{Holding, LoanRequest},
    table::RegionName,
    terms::{Moment, Terms},
};

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
        for account in ledger.accounts_mut() {
            account.borrowed.retain(|loan| loan.until >= now.label);
        }
    }
    let id = ledger.last_id.saturating_add(1).max(now.micros);
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
