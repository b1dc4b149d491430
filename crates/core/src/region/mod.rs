//! Shares of a limit that several regions enforce together.
//!
//! - [`weights`]: the division of a limit by weight.
//! - [`demarcation`]: changes of the weights.
//! - [`record`]: their text form, which a region's store keeps.
//! - [`shares`]: own shares as decisions need them.
//!
//! Each region's store owns a fixed share of every limit with `scope: global`, its *base*: in proportion to its weight, and
//! rounded so that the bases of all regions add up to the limit, for each counter. Hits that rounding leaves go one by one
//! to regions in an order that depends on the counter, so that no region has all of them. Source: the escrow method (P.
//! O'Neil, "The Escrow Transactional Method", 1986).
//!
//! While the weights change, a region uses the smaller of its two shares at once, and a larger one only when no region may
//! still use more than its new share, and the hits made under the former shares have stopped counting: the demarcation
//! protocol (D. Barbará, H. Garcia-Molina, 1994). The simulator of `crates/regions` runs these transitions.

mod demarcation;
mod record;
mod shares;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;
mod weights;

pub use self::{
    demarcation::{Demarcation, FormerWeights, RefusedTable, TableState, WeightTable},
    record::InvalidTables,
    shares::RegionShares,
    weights::{RegionWeight, RegionWeights, hash_of},
};

/// Maximum number of regions that share limits.
pub const MAX_REGIONS: usize = 16;
