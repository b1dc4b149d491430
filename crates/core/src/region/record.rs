//! Text form of a region's tables, which its store keeps for instances that start.
//!
//! A line for each table, from the oldest to the newest: `generation digest lowered_at rest name:weight,…`, where
//! `lowered_at` is in microseconds or `-`, and `rest` is `all` or `none`, the hits that rounding leaves. Further words of a
//! line are ignored.

use std::fmt::Write as _;

use super::{FormerWeights, MAX_REGIONS, RegionWeight, RegionWeights, WeightTable};
use crate::clock::Timestamp;

/// Maximum number of tables in a record; fewer are written.
const MAX_TABLES: usize = 256;

/// Error of a record that no version of this program wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {0} of the record of region tables is not readable; expected what this version writes")]
pub struct InvalidTables(usize);

/// The text of the tables.
pub(super) fn write(former: &[FormerWeights], newest: &WeightTable) -> String {
    let mut text = String::new();
    for FormerWeights { table, lowered_at } in former {
        line(&mut text, table, *lowered_at);
    }
    line(&mut text, newest, None);
    text
}

fn line(text: &mut String, table: &WeightTable, lowered_at: Option<Timestamp>) {
    let lowered_at = lowered_at.map_or_else(|| "-".to_owned(), |at| at.as_micros().to_string());
    let WeightTable { generation, digest, weights } = table;
    let rest = if weights.gives_rest() { "all" } else { "none" };
    let regions: Vec<_> =
        weights.regions().map(|region| format!("{}:{}", region.name, region.weight)).collect();
    // Writing to a string does not fail.
    let _ = writeln!(text, "{generation} {digest:x} {lowered_at} {rest} {}", regions.join(","));
}

/// Reads the tables as the region `own` has them; the newest is the last.
///
/// # Errors
/// [`InvalidTables`] with the number of the first line that cannot be read.
pub(super) fn read(text: &str, own: &str) -> Result<Vec<FormerWeights>, InvalidTables> {
    let lines = text.lines().take(MAX_TABLES).enumerate();
    lines.map(|(at, line)| table(line, own).ok_or(InvalidTables(at.saturating_add(1)))).collect()
}

fn table(line: &str, own: &str) -> Option<FormerWeights> {
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
    let weights = if gives_rest { weights } else { weights.rounded_down() };
    Some(FormerWeights { table: WeightTable { generation, digest, weights }, lowered_at })
}
