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

mod fill;
mod lend;
mod request;
mod settle;
mod take;

pub use self::{
    lend::{Lent, lend},
    request::{Share, request_loans},
    settle::settle,
    take::{Taken, take},
};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// A loan request that is not newer than the last one.
    #[error("the loan request was answered before")]
    Replayed,
    /// A loan request that is numbered more than an hour ahead of this region's clock.
    #[error("the loan request's number is too far ahead; expected one of about the time")]
    Ahead,
    /// Labels that differ more than the clocks of regions may.
    #[error("the label is too far from this region's; expected synchronised clocks")]
    Skewed,
    /// More loans than a region has.
    #[error("the message lists too many loans")]
    Long,
    /// No room for another region.
    #[error("the record has loans with too many regions")]
    Full,
}
