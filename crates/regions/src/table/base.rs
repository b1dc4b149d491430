//! Base shares: the division of a limit by weight.

use super::{Region, RegionName, RegionTable};

impl RegionTable {
    /// Base share of `region` in a limit, in the limit's units; 0 for a region that is lost or not in the table.
    ///
    /// The shares of all regions add up to the limit. What is left of the rounded shares goes one by one to the regions in
    /// the order of a hash of the counter and the region, so that small limits of many counters spread over the regions.
    /// `counter` identifies the counter by the same bytes in all regions.
    pub fn base(&self, limit: u32, counter: &[u8], region: &RegionName) -> u32 {
        let Some(own) = self.region(region).filter(|region| !region.is_lost) else { return 0 };
        let sharing = || self.regions().iter().filter(|region| !region.is_lost);
        let total: u64 = sharing().map(|region| u64::from(region.weight.get())).sum();
        let floor = |region: &Region| {
            let part = u64::from(limit).saturating_mul(region.weight.get().into());
            part.checked_div(total).unwrap_or(0)
        };
        let left = u64::from(limit).saturating_sub(sharing().map(floor).sum());
        let place = |region: &Region| mix(mix(0, counter), region.name.as_str().as_bytes());
        let is_before = |region: &Region| (place(region), &region.name) < (place(own), &own.name);
        let before = sharing().filter(|region| is_before(region)).count();
        let extra = u64::from(u64::try_from(before).unwrap_or(u64::MAX) < left);
        u32::try_from(floor(own).saturating_add(extra)).unwrap_or(limit)
    }
}

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
