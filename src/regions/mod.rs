//! Regions that enforce limits of `scope: global` together.
//!
//! - [`file`]: the region table, which is read again when it changes.
//! - [`state`]: the active weights, and changes of them.
//!
//! Each region's counters enforce its share of every global limit, so that no region depends on another one.

mod file;
pub mod metrics;
mod state;

pub(crate) use self::file::sharing_of;
pub use self::{
    file::{RegionTableError, Regions},
    state::{RegionView, RegionsView},
};
