//! Part of a ledger that decisions need.

use tollgate_core::algorithm::{Loan, LoanTotals};
use tollgate_regions::{
    ledger::Ledger,
    terms::{Kind, Terms},
};

const MICROS_PER_SECOND: u64 = 1_000_000;

/// Ends of loans that are looked at: more than the regions of a table can have at once.
const MAX_ENDS: usize = 512;

/// Totals of a ledger at a label: what is borrowed, until any of it ends; and what is lent, until all of it has ended. So
/// they never allow more than the ledger does, and are exact until the first change of it.
pub(super) fn of(ledger: &Ledger, terms: &Terms, label: u64) -> LoanTotals {
    let hits = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX);
    let (borrowed, lent) = (ledger.borrowed(label), ledger.lent(label));
    let borrowed_until = until(ledger, label, |label| ledger.borrowed(label) >= borrowed);
    let lent_until = until(ledger, label, |label| ledger.lent(label) > 0);
    // Unless the end is settled before, a bucket has what it lent again when its refill since then would fill it: that
    // makes no tokens.
    let lent_until = match terms.kind {
        Kind::TokenBucket { capacity, .. } => lent_until.saturating_add(capacity),
        _ => lent_until,
    };
    let is_label = terms.kind.label_step().is_some();
    let word = |label: u64| u32::try_from(label).unwrap_or(u32::MAX);
    // A label of a second is the end of it.
    let (first, last) = match is_label {
        true => (word(borrowed_until), word(lent_until)),
        false => (
            word(borrowed_until / MICROS_PER_SECOND),
            word((lent_until / MICROS_PER_SECOND).saturating_add(1)),
        ),
    };
    let loan = |hits, until| if hits == 0 { Loan::default() } else { Loan { hits, until } };
    LoanTotals { borrowed: loan(hits(borrowed), first), lent: loan(hits(lent), last) }
}

/// The last label up to which a condition holds that holds at `label`.
fn until(ledger: &Ledger, label: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let mut last = ledger.good_until(label);
    for _ in 0..MAX_ENDS {
        let next = last.saturating_add(1);
        if last == u64::MAX || !holds(next) {
            break;
        }
        last = ledger.good_until(next);
    }
    last
}

/// Whether totals differ in what they allow from a label on.
pub(super) fn differ(one: &LoanTotals, other: &LoanTotals, label: u32) -> bool {
    let active = |loan: Loan| if loan.hits > 0 && loan.until >= label { loan } else { Loan::default() };
    active(one.borrowed) != active(other.borrowed) || active(one.lent) != active(other.lent)
}
