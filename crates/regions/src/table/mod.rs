//! Names of regions. Their weights, and changes of these, are in `tollgate_core::region`.

mod name;

pub use self::name::{InvalidName, RegionName};

/// Maximum number of regions.
pub const MAX_REGIONS: usize = 16;

/// Mixes bytes into a digest: FNV-1a (Fowler, Noll, Vo), finished as in SplitMix64 so that all bits depend on all bytes.
/// All regions compute the same, in any version.
pub(crate) fn mix(digest: u64, bytes: &[u8]) -> u64 {
    let start = digest ^ 0xcbf2_9ce4_8422_2325;
    let hash =
        bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}
