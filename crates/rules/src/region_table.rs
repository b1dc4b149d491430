//! Regions that enforce limits together, as an operator states them.

use tollgate_core::region::{RegionWeight, RegionWeights};

/// Regions of one generation, in the order of their names. Valid by construction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionTable {
    generation: u64,
    roles: RegionRoles,
    regions: Box<[RegionEntry]>,
}

/// Regions that do something for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionRoles {
    /// Region that writes the rules of all, if one does.
    pub(crate) writing: Option<Box<str>>,
    /// Region that decides limits with `scope: primary` for all, if there is one.
    pub(crate) primary: Option<Box<str>>,
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
    /// `regions` are valid, and one of them is not lost; those with a role are among them, and the primary one is not lost.
    pub(crate) fn new(generation: u64, roles: RegionRoles, mut regions: Vec<RegionEntry>) -> Self {
        regions.sort_by(|one, next| one.name.cmp(&next.name));
        Self { generation, roles, regions: regions.into() }
    }

    /// The generation: a later table has a higher one.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The region whose rule versions, lists and switches all others copy; `None` if each region has its own.
    pub fn writing(&self) -> Option<&str> {
        self.roles.writing.as_deref()
    }

    /// The region that decides limits with `scope: primary` for all, if the table names one.
    pub fn primary(&self) -> Option<&str> {
        self.roles.primary.as_deref()
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
