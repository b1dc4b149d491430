//! Regions that enforce limits together, as an operator states them.

use tollgate_core::region::{RegionWeight, RegionWeights};

/// Regions of one generation, in the order of their names. Valid by construction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionTable {
    generation: u64,
    /// Region that writes the rules of all, if one does.
    writing: Option<Box<str>>,
    regions: Box<[RegionEntry]>,
}

/// A region of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionEntry {
    /// Name: 1 to 63 of `a-z`, `0-9` and `-`.
    pub name: Box<str>,
    /// URL of the service between regions: `https://host:port`.
    pub address: Box<str>,
    /// DNS name in the certificates of the region's instances.
    pub certificate_name: Box<str>,
    /// Part of every global limit, 1 to 1,000.
    pub weight: u32,
    /// Whether an operator has given the region up: it has no share, and no change of weights waits for it.
    pub is_lost: bool,
}

impl RegionTable {
    /// `regions` are valid, and one of them is not lost; `writing` is one of them.
    pub(crate) fn new(generation: u64, writing: Option<Box<str>>, mut regions: Vec<RegionEntry>) -> Self {
        regions.sort_by(|one, next| one.name.cmp(&next.name));
        Self { generation, writing, regions: regions.into() }
    }

    /// The generation: a later table has a higher one.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The region whose rule versions, lists and switches all others copy; `None` if each region has its own.
    pub fn writing(&self) -> Option<&str> {
        self.writing.as_deref()
    }

    /// The regions.
    pub fn regions(&self) -> &[RegionEntry] {
        &self.regions
    }

    /// The region of that name.
    pub fn region(&self, name: &str) -> Option<&RegionEntry> {
        self.regions.iter().find(|region| &*region.name == name)
    }

    /// Number of regions that have a share.
    pub fn sharing(&self) -> usize {
        self.regions.iter().filter(|region| !region.is_lost).count()
    }

    /// The weights as the region `own` has them; `None` if the table lacks it.
    pub fn weights(&self, own: &str) -> Option<RegionWeights> {
        let weights = self.regions.iter().map(|region| RegionWeight {
            name: region.name.clone(),
            weight: if region.is_lost { 0 } else { region.weight },
        });
        RegionWeights::new(weights, own)
    }
}
