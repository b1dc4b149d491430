//! The regions and their weights.

mod base;
mod name;

use std::{fmt, num::NonZeroU16};

pub(crate) use self::base::mix;

pub use self::name::{InvalidName, RegionName};

/// Maximum number of regions.
pub const MAX_REGIONS: usize = 16;

/// A region of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its name.
    pub name: RegionName,
    /// Its part of each limit, relative to the other weights.
    pub weight: NonZeroU16,
    /// Whether an operator has declared that it decides nothing any more. A lost region has no share, is not asked, and
    /// no change of shares waits for it.
    pub is_lost: bool,
}

/// All regions over which limits are divided: 1 to [`MAX_REGIONS`] with different names, at least one of them not lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionTable {
    generation: u64,
    /// In the order of their names.
    regions: Vec<Region>,
}

/// Identity of a table. Two regions lend to each other only while both have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TableStamp {
    /// Number of the table; a larger one replaces a smaller one.
    pub generation: u64,
    /// Digest of names, weights and lost regions, so that two contents under one number differ.
    pub digest: u64,
}

impl fmt::Display for TableStamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.generation, self.digest)
    }
}

/// Error of a table that divides nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// No number.
    #[error("the generation is 0; expected at least 1")]
    NoGeneration,
    /// No region with a share.
    #[error("no region has a share; expected at least one that is not lost")]
    NoShare,
    /// Too many regions.
    #[error("the table has {0} regions; expected at most {MAX_REGIONS}")]
    TooMany(usize),
    /// Two regions of one name.
    #[error("region `{0}` is listed twice; expected each region once")]
    Twice(RegionName),
}

impl RegionTable {
    /// Returns the table of these regions, in any order.
    ///
    /// # Errors
    /// [`TableError`] for no generation, no or too many regions, or a name that occurs twice.
    pub fn new(generation: u64, mut regions: Vec<Region>) -> Result<Self, TableError> {
        if generation == 0 {
            return Err(TableError::NoGeneration);
        }
        if regions.len() > MAX_REGIONS {
            return Err(TableError::TooMany(regions.len()));
        }
        if regions.iter().all(|region| region.is_lost) {
            return Err(TableError::NoShare);
        }
        regions.sort_by(|one, other| one.name.cmp(&other.name));
        for (one, other) in regions.iter().zip(regions.iter().skip(1)) {
            if one.name == other.name {
                return Err(TableError::Twice(one.name.clone()));
            }
        }
        Ok(Self { generation, regions })
    }

    /// Number of the table.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The regions, in the order of their names.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The region of this name.
    pub fn region(&self, name: &RegionName) -> Option<&Region> {
        self.regions.iter().find(|region| region.name == *name)
    }

    /// Regions that lend and borrow, without `own`.
    pub fn peers<'a>(&'a self, own: &'a RegionName) -> impl Iterator<Item = &'a RegionName> {
        self.regions
            .iter()
            .filter(|region| !region.is_lost)
            .map(|region| &region.name)
            .filter(move |name| *name != own)
    }

    /// Identity of the table.
    pub fn stamp(&self) -> TableStamp {
        let mut digest = mix(0, &self.generation.to_le_bytes());
        for region in &self.regions {
            digest = mix(digest, region.name.as_str().as_bytes());
            digest = mix(digest, &region.weight.get().to_le_bytes());
            digest = mix(digest, &[u8::from(region.is_lost)]);
        }
        TableStamp { generation: self.generation, digest }
    }
}
