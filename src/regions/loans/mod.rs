//! Loans between regions: loan requests to others, and answers to theirs.
//!
//! - [`borrower`]: requests loans for counters whose share does not suffice.
//! - [`lender`]: answers loan requests.
//! - [`renewals`]: counters for which loan requests are in flight, and those whose loans are to be prolonged.
//! - [`wire`]: the messages.
//!
//! The ledgers of the counters, which their store keeps, decide; a message that is lost, late, repeated or forged makes no
//! region admit more than the limit. See [`tollgate_store::loans`].

mod borrower;
mod lender;
mod renewals;
#[cfg(test)]
mod tests;
pub(super) mod wire;

pub(super) use self::{borrower::Borrower, lender::Lender};

/// Time limit of a transaction on a ledger.
const LEDGER_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(500);
