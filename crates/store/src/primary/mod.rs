//! Counters that one region, the primary one, decides for all regions.
//!
//! - [`calls`]: calls on their way to the primary region.
//! - [`store`]: routes requests: to the region's own store, and those about these counters to the primary region.
//!
//! Only the names of the cells state where a counter is decided ([`CellKey::is_at_primary`](crate::key::CellKey)), so that
//! refunds, releases and deferred charges take the same way as the charge.

mod calls;
mod store;
#[cfg(test)]
mod tests;

pub use self::{
    calls::{PrimaryCall, PrimaryCalls, PrimaryQueue, PrimaryRole},
    store::PrimaryRouter,
};
