//! Messages between two regions about one counter. What identifies the counter, the sender and its table is around them.

/// Request of a region, the borrower, for more of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoanRequest {
    /// Number of the request: rises with each, for this counter and region.
    pub id: u64,
    /// Label of the borrower; see [`Moment`](crate::terms::Moment).
    pub label: u64,
    /// Amount of the borrower's loans from this peer to prolong.
    pub hold: u32,
    /// Amount to lend, or to return, beyond that.
    pub want: u32,
    /// All loans of this peer that the borrower has or whose hits still count: at most
    /// [`MAX_BORROWED`](crate::ledger::MAX_BORROWED).
    pub have: Vec<Holding>,
}

/// Amount left of a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Number of the request that led to the loan.
    pub id: u64,
    /// Amount left.
    pub amount: u32,
}

/// Answer to a [`LoanRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Number of the request.
    pub id: u64,
    /// Label of the lender.
    pub label: u64,
    /// Label from which the loan is active, if ends are window labels; else 0.
    pub from: u64,
    /// Amount that the borrower has of this peer in all from then on, in place of earlier loans; 0 lends nothing.
    pub amount: u32,
    /// Part of it by which the lender's own limit fell: the part that brings tokens of a bucket.
    pub added: u32,
    /// Fill of the lender's bucket; see [`LimitKind::full_level`](crate::terms::LimitKind::full_level).
    pub level: u64,
    /// All loans of the borrower that the lender has, or whose hits still count: at most
    /// [`MAX_BORROWED`](crate::ledger::MAX_BORROWED). What it returned is missing or less.
    pub have: Vec<Holding>,
    /// Number of the last request of the lender to the borrower that is answered or lost: the lender has no loan of up to
    /// this number but those listed, and takes no more.
    pub resolved: u64,
    /// Amount that the lender could still lend.
    pub spare: u32,
}
