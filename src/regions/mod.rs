//! Regions that enforce limits of `scope: global` or `scope: primary` together.
//!
//! - [`mod@file`]: the region table, which is read again when it changes.
//! - [`state`]: the active weights, and changes of them; [`announcements`]: what other regions state of theirs.
//! - [`tables`]: the region's tables in its control store.
//! - [`loans`]: parts of the shares that regions lend to each other.
//! - [`primary`]: decisions of one region for all of them.
//! - [`peers`]: exchange of messages with the other regions.
//!
//! Each region's counters enforce its share of every global limit, so that no region depends on another one.

mod announcements;
mod file;
mod loans;
pub mod metrics;
mod peers;
mod primary;
mod state;
mod tables;

pub(crate) use self::file::size_of;
pub use self::{
    file::{RegionTableError, Regions},
    metrics::RegionCounts,
    peers::{Lending, Peers, PeersError},
    state::{RegionView, RegionsView},
};
