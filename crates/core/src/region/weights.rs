//! The division of a limit by weight.

/// A region and its part of every global limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionWeight {
    /// The region's name.
    pub name: Box<str>,
    /// Its part, in proportion to those of all regions.
    pub weight: u32,
}

/// Weights of all regions in one generation of the region table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionWeights {
    regions: Box<[(RegionWeight, u64)]>,
    own: usize,
    total: u64,
    /// Whether the hits that rounding leaves are given to regions.
    gives_rest: bool,
}

impl RegionWeights {
    /// Returns the weights of `regions` as the region at the index `own` has them; `None` if there is no such region, or
    /// every weight is 0.
    pub fn new(regions: impl IntoIterator<Item = RegionWeight>, own: &str) -> Option<Self> {
        let regions: Box<[_]> = regions
            .into_iter()
            .map(|region| {
                let hash = hash_of(region.name.as_bytes());
                (region, hash)
            })
            .collect();
        let own = regions.iter().position(|(region, _)| &*region.name == own)?;
        let total: u64 = regions.iter().map(|(region, _)| u64::from(region.weight)).sum();
        (total > 0).then_some(Self { regions, own, total, gives_rest: true })
    }

    /// The weights of a table in which the own region has no share.
    pub(super) fn none() -> Self {
        Self { regions: Box::default(), own: 0, total: 0, gives_rest: false }
    }

    /// Returns weights whose own base is at most that of both, for each limit and counter.
    pub(super) fn lower(self, other: Self) -> Self {
        let part = |of: &Self, total: u64| u128::from(of.own_weight()).saturating_mul(total.into());
        let is_lower =
            self.total == 0 || other.total > 0 && part(&self, other.total) <= part(&other, self.total);
        // A region may have a part of what rounding leaves in one of them alone.
        Self { gives_rest: false, ..if is_lower { self } else { other } }
    }

    /// Without the hits that rounding leaves.
    pub(super) fn rounded_down(self) -> Self {
        Self { gives_rest: false, ..self }
    }

    /// Whether the hits that rounding leaves are given to regions.
    pub(super) const fn gives_rest(&self) -> bool {
        self.gives_rest
    }

    /// Name of the own region, if it is in the table.
    pub(super) fn own(&self) -> Option<&str> {
        self.regions.get(self.own).map(|(region, _)| &*region.name)
    }

    fn own_weight(&self) -> u32 {
        self.regions.get(self.own).map_or(0, |(region, _)| region.weight)
    }

    /// The regions in their order.
    pub fn regions(&self) -> impl Iterator<Item = &RegionWeight> {
        self.regions.iter().map(|(region, _)| region)
    }

    /// Sum of all weights.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Own base of a limit for the counter with the hash that `counter` returns: the bases of all regions add up to `limit`.
    pub fn base(&self, limit: u32, counter: impl FnOnce() -> u64) -> u32 {
        let whole = |weight: u32| {
            u64::from(limit).saturating_mul(weight.into()).checked_div(self.total).unwrap_or_default()
        };
        let Some((own, own_hash)) = self.regions.get(self.own).filter(|(own, _)| own.weight > 0) else {
            return 0;
        };
        let given: u64 = self.regions().map(|region| whole(region.weight)).sum();
        let left = u64::from(limit).saturating_sub(given);
        let own_base = whole(own.weight);
        let has_more = self.gives_rest && left > 0 && {
            let counter = counter();
            let own_rank = (mixed(counter ^ own_hash), &own.name);
            let ranks = self.regions.iter().filter(|(region, _)| region.weight > 0);
            let before = ranks.filter(|(region, hash)| (mixed(counter ^ hash), &region.name) < own_rank);
            (before.count() as u64) < left
        };
        u32::try_from(own_base.saturating_add(has_more.into())).unwrap_or(limit)
    }
}

/// FNV-1a. Its values are part of the regions' behaviour: instances of two versions must agree.
pub fn hash_of(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Mixes the bits as MurmurHash3 does.
const fn mixed(hash: u64) -> u64 {
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}
