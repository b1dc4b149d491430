//! Shares of a limit that several regions enforce together.
//!
//! - [`RegionWeights`]: the division of a limit by weight.
//! - [`demarcation`]: changes of the weights, and their text form, which a region's store keeps for instances that start.
//! - [`RegionShares`]: own shares as decisions need them.
//!
//! Each region's store owns a fixed share of every limit with `scope: global`, its *base*: in proportion to its weight, and
//! rounded so that the bases of all regions add up to the limit, for each counter. Hits that rounding leaves go one by one
//! to regions in an order that depends on the counter, so that no region has all of them. Source: the escrow method (P.
//! O'Neil, "The Escrow Transactional Method", 1986).
//!
//! While the weights change, a region uses the smaller of its two shares at once, and a larger one only when no region may
//! still use more than its new share, and the hits made under the former shares have stopped counting: the demarcation
//! protocol (D. Barbará, H. Garcia-Molina, 1994). The simulator of this crate runs these transitions.

mod demarcation;
#[cfg(test)]
mod table_tests;

use std::{fmt::Write as _, time::Duration};

use tollgate_core::{algorithm::Policy, clock::Timestamp, hash_of, mixed};

pub use self::demarcation::{Demarcation, FormerWeights, TableState, WeightTable};
use crate::table::MAX_REGIONS;

/// Time beyond the tail of a hit after which a share grows: loans of the former share are booked for 5.5 s, and the clocks
/// of two regions that lend may differ by 5 s.
const TAIL_MARGIN: Duration = Duration::from_secs(11);

/// Own share of every global limit, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionShares {
    /// Generation of the region table.
    pub generation: u64,
    weights: RegionWeights,
    former: Box<[FormerWeights]>,
}

impl RegionShares {
    /// Returns the shares of a table after changes from `former` weights, if there were any.
    pub fn new(generation: u64, weights: RegionWeights, former: Vec<FormerWeights>) -> Self {
        Self { generation, weights, former: former.into() }
    }

    /// Own share of a limit that `policy` enforces, at `now`, for the counter with the hash that `counter` returns.
    pub fn share(
        &self,
        limit: u32,
        policy: &Policy,
        now: impl FnOnce() -> Timestamp,
        counter: impl Fn() -> u64,
    ) -> u32 {
        let share = self.weights.base(limit, &counter);
        if self.former.is_empty() {
            return share;
        }
        let (now, tail) = (now(), policy.tail().saturating_add(TAIL_MARGIN));
        let counts =
            |former: &&FormerWeights| former.lowered_at.is_none_or(|lowered_at| now.since(lowered_at) < tail);
        let former =
            self.former.iter().filter(counts).map(|former| former.table.weights.base(limit, &counter));
        former.fold(share, u32::min)
    }
}

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
        let own = |of: &Self| of.regions.get(of.own).map_or(0, |(region, _)| region.weight);
        let part = |of: &Self, total: u64| u128::from(own(of)).saturating_mul(total.into());
        let is_lower =
            self.total == 0 || other.total > 0 && part(&self, other.total) <= part(&other, self.total);
        // A region may have a part of what rounding leaves in one of them alone.
        Self { gives_rest: false, ..if is_lower { self } else { other } }
    }

    /// Name of the own region, if it is in the table.
    pub(super) fn own(&self) -> Option<&str> {
        self.regions.get(self.own).map(|(region, _)| &*region.name)
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
        let limit = u64::from(limit);
        // Both factors have 32 bits.
        let whole = |weight: u32| (limit * u64::from(weight)).checked_div(self.total).unwrap_or_default();
        let Some((own, own_hash)) = self.regions.get(self.own).filter(|(own, _)| own.weight > 0) else {
            return 0;
        };
        let given: u64 = self.regions().map(|region| whole(region.weight)).sum();
        let left = limit - given;
        let has_more = self.gives_rest && left > 0 && {
            let counter = counter();
            let own_rank = (mixed(counter ^ own_hash), &own.name);
            let ranks = self.regions.iter().filter(|(region, _)| region.weight > 0);
            let before = ranks.filter(|(region, hash)| (mixed(counter ^ hash), &region.name) < own_rank);
            left > before.count() as u64
        };
        u32::try_from(whole(own.weight) + u64::from(has_more)).unwrap_or(u32::MAX)
    }
}

/// Maximum number of tables in a record; fewer are written.
const MAX_TABLES: usize = 256;

/// Error of a record that no version of this program wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {0} of the record of region tables is not readable; expected what this version writes")]
pub struct InvalidTables(usize);

/// The text of the tables, which a region's store keeps for instances that start.
///
/// A line for each table, from the oldest to the newest: `generation digest lowered_at rest name:weight,…`, where
/// `lowered_at` is in microseconds or `-`, and `rest` is `all` or `none`, the hits that rounding leaves. Further words of a
/// line are ignored.
fn write_tables(former: &[FormerWeights], newest: &WeightTable) -> String {
    let mut text = String::new();
    for FormerWeights { table, lowered_at } in former {
        write_table(&mut text, table, *lowered_at);
    }
    write_table(&mut text, newest, None);
    text
}

fn write_table(text: &mut String, table: &WeightTable, lowered_at: Option<Timestamp>) {
    let lowered_at = lowered_at.map_or_else(|| "-".to_owned(), |at| at.as_micros().to_string());
    let WeightTable { generation, digest, weights } = table;
    let rest = if weights.gives_rest { "all" } else { "none" };
    let regions: Vec<_> =
        weights.regions().map(|region| format!("{}:{}", region.name, region.weight)).collect();
    // Writing to a string does not fail.
    let _ = writeln!(text, "{generation} {digest:x} {lowered_at} {rest} {}", regions.join(","));
}

/// Reads the tables as the region `own` has them; the newest is the last.
///
/// # Errors
/// [`InvalidTables`] with the number of the first line that cannot be read.
fn read_tables(text: &str, own: &str) -> Result<Vec<FormerWeights>, InvalidTables> {
    let lines = text.lines().take(MAX_TABLES).enumerate();
    lines.map(|(at, line)| read_table(line, own).ok_or(InvalidTables(at.saturating_add(1)))).collect()
}

fn read_table(line: &str, own: &str) -> Option<FormerWeights> {
    let mut words = line.split(' ');
    let generation = words.next()?.parse().ok()?;
    let digest = u64::from_str_radix(words.next()?, 16).ok()?;
    let lowered_at = match words.next()? {
        "-" => None,
        micros => Some(Timestamp::from_micros(micros.parse().ok()?)),
    };
    let gives_rest = match words.next()? {
        "all" => true,
        "none" => false,
        _ => return None,
    };
    let regions = words.next()?.split(',').filter(|region| !region.is_empty());
    let regions: Vec<RegionWeight> = regions
        .map(|region| {
            let (name, weight) = region.split_once(':')?;
            Some(RegionWeight { name: name.into(), weight: weight.parse().ok()? })
        })
        .collect::<Option<_>>()?;
    if regions.len() > MAX_REGIONS {
        return None;
    }
    // Without a share in the table, the region has none.
    let weights = RegionWeights::new(regions, own).unwrap_or_else(RegionWeights::none);
    let weights = RegionWeights { gives_rest: gives_rest && weights.gives_rest, ..weights };
    Some(FormerWeights { table: WeightTable { generation, digest, weights }, lowered_at })
}

#[cfg(test)]
mod tests;
