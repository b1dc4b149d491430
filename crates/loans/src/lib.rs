//! One limit over several regions: shares, loans between them, and the protocol of the loans, without input or output.
//!
//! Each region decides with its own counter and its own share of the limit. What one region does not use, it lends to
//! another for a few seconds. No region waits for another to decide, none is the leader, and the shares and loans of all
//! regions never exceed the limit, whatever messages are lost, repeated, reordered or late.
//!
//! - [`table`]: names of regions.
//! - [`shares`]: the division of a limit by weight, and changes of the weights.
//! - [`terms`]: what the protocol needs of a limit: units, lengths of loans, how long a hit counts after its loan.
//! - [`ledger`]: the record of one counter in one region: what it lent and what it borrowed.
//! - [`message`]: a loan request, and the reply to it.
//! - [`protocol`]: the transitions of a ledger. Each is one atomic step in the store of its region.
//! - [`policy`]: when to request a loan, for how much, and what a lender keeps. The limit holds with any policy.
//!
//! # Sources
//!
//! Shares with local limits are the escrow method (O'Neil, "The escrow transactional method", 1986). The change of shares
//! is the demarcation protocol (Barbará and Garcia-Molina, 1992): the lowering side goes first. Transfers between replicas
//! are those of the bounded counter (Balegas et al., "Extending eventually consistent cloud databases for enforcing
//! numeric invariants", 2015). Transfers of that counter last for ever and need a log; these loans end by themselves, so
//! that a lost region returns all that it borrowed, and no record outlives its use.
//!
//! # Why nothing is over
//!
//! For each pair of regions and each moment, the borrower's amount is at most the lender's booking:
//!
//! - A loan grows by a booking of the lender, before it replies. The borrower takes a reply only to its outstanding
//!   request.
//! - A loan shrinks at the borrower before the lender learns of it, and amounts of a loan only fall.
//! - A loan ends for the borrower first: it counts from before the request was sent, the lender from after its receipt,
//!   and the lender adds the time for which a hit still counts. Windows have the same labels on both sides.
//!
//! The shares add up to the limit, so the effective limits of all regions add up to at most that.

// Amounts have 32 bits and are added up in 64. Times are microseconds or seconds of a clock, below 2^53, and so are the
// numbers of a record; what a peer sends is bounded by its skew, or saturates.
#![allow(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::print_stdout, clippy::float_arithmetic))]

mod fault;
pub mod ledger;
pub mod message;
pub mod policy;
pub mod protocol;
pub mod shares;
pub mod table;
pub mod terms;

#[cfg(test)]
mod tests;
