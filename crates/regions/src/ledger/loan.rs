//! One loan, as the lender or the borrower records it.

/// An amount from one label to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan {
    /// Number of the request that led to it.
    pub id: u64,
    /// Amount in the limit's units; only falls.
    pub amount: u32,
    /// First label at which it counts. At the lender 0: a booking counts at once.
    pub from: u64,
    /// Last label at which it counts. At the lender this includes the tail.
    pub until: u64,
}

impl Loan {
    /// The amount at `label`.
    pub const fn at(&self, label: u64) -> u32 {
        if self.from <= label && label <= self.until { self.amount } else { 0 }
    }

    /// Whether `old` of the same pair no longer matters at `label`: this one is as large and lasts as long.
    pub(crate) const fn replaces(&self, old: &Self, label: u64) -> bool {
        self.from <= label && old.amount <= self.amount && old.until <= self.until
    }
}

/// Amount of several loans of a pair of regions at `label`: the largest.
pub(super) fn amount_at(loans: &[Loan], label: u64) -> u32 {
    loans.iter().map(|loan| loan.at(label)).max().unwrap_or(0)
}
