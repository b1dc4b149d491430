//! Loans between this region and one other.

use super::loan::{Loan, amount_at};

/// Maximum number of loans of which a lender has bookings for one region.
pub const MAX_LENT: usize = 16;

/// Maximum number of loans that a borrower has from one region.
pub const MAX_BORROWED: usize = 8;

/// Account with another region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Number of the peer's last loan request that was answered; earlier ones are ignored.
    pub seen: u64,
    /// Number of the request to the peer that is not answered yet; 0 for none.
    pub outstanding: u64,
    /// Time before which that request was not sent, in microseconds.
    pub sent_at: u64,
    /// Amount that the request may bring at most.
    pub wanted: u32,
    /// Amount that the peer last reported as spare.
    pub spare: u32,
    /// Loans that the peer may have of this region; at most [`MAX_LENT`].
    pub lent: Vec<Loan>,
    /// Loans that this region has of the peer; at most [`MAX_BORROWED`].
    pub borrowed: Vec<Loan>,
}

impl Account {
    /// Amount booked for the peer at `label`.
    pub fn lent_at(&self, label: u64) -> u32 {
        amount_at(&self.lent, label)
    }

    /// Amount borrowed from the peer at `label`.
    pub fn borrowed_at(&self, label: u64) -> u32 {
        amount_at(&self.borrowed, label)
    }

    /// Whether the account has no loans.
    pub(crate) const fn is_idle(&self) -> bool {
        self.lent.is_empty() && self.borrowed.is_empty()
    }
}
