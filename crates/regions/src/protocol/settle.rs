//! The end of loans.

use super::fill::{Raise, raised};
use crate::{
    ledger::Ledger,
    terms::{Kind, Moment, Terms},
};

/// Drops the loans that have ended before `now`, and returns when the bucket will be full.
///
/// A borrowed loan stays listed while its hits may count. The ends are processed in their order, since what a bucket
/// refills after one of them is refilled under another limit.
pub fn settle(ledger: &mut Ledger, terms: &Terms, now: Moment, full_at: u64) -> u64 {
    let full_at = match terms.kind {
        Kind::TokenBucket { .. } => refill(ledger, terms, now, full_at),
        _ => full_at,
    };
    let tail = terms.kind.tail();
    for account in ledger.accounts_mut() {
        account.lent.retain(|loan| loan.until >= now.label);
        account.borrowed.retain(|loan| loan.until.saturating_add(tail) >= now.label);
    }
    full_at
}

/// Fill of a bucket after all ends before `now`.
fn refill(ledger: &Ledger, terms: &Terms, now: Moment, full_at: u64) -> u64 {
    let loans = ledger.accounts().flat_map(|(_, account)| account.lent.iter().chain(&account.borrowed));
    let mut ends: Vec<u64> = loans.map(|loan| loan.until).filter(|until| *until < now.label).collect();
    ends.sort_unstable();
    ends.dedup();
    let mut full_at = full_at;
    for end in ends {
        let next = end.saturating_add(1);
        let borrowed = |label| u32::try_from(ledger.borrowed(label)).unwrap_or(u32::MAX);
        let returned = borrowed(end).saturating_sub(borrowed(next));
        let before = ledger.effective(terms, end).saturating_sub(returned);
        full_at = raised(terms.kind, full_at, next, Raise::empty(before, ledger.effective(terms, next)));
    }
    full_at
}
