//! Compares the charges in Redis with the responses to callers: none lost, none doubled.
//!
//! No limit is reached and no window ends, so a counter in Redis is the number of charges that were made there. It has
//! to be that of the answers which were the store's; beside these it may have those requests whose outcome callers
//! do not know: degraded ones and unanswered ones, as their charges may have arrived nevertheless.

use redis::cmd;

use super::{report::ReportRow, samples::Samples};
use crate::support::redis::hits;

/// Charges as Redis has them, and as the answers have them; of all names together, but judged for each.
#[derive(Clone, Copy, Debug, Default)]
struct Charges {
    counted: usize,
    known: usize,
    unknown: usize,
    twice: usize,
    lost: usize,
}

/// Whether charges may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Losses {
    /// Charges that a master had not replicated are lost with it.
    WithTheMaster,
    Never,
}

/// The key of a name's counter.
pub(super) fn key(name: &str) -> String {
    format!("{{d|k={name}}}")
}

/// Compares, and says so in the row. `holder` gives a connection to the server that has a name's counter.
pub(super) fn compare(
    row: &mut ReportRow,
    samples: &Samples,
    names: &[String],
    losses: Losses,
    mut holder: impl FnMut(&str) -> redis::Connection,
) {
    let mut sum = Charges::default();
    for (number, name) in names.iter().enumerate() {
        let cell: Option<Vec<u8>> =
            cmd("GET").arg(key(name)).query(&mut holder(name)).expect("the server has the slot");
        let counted = cell.map_or(0, |cell| hits(&cell)) as usize;
        let mine = samples.such(|sample| sample.key == number);
        let known = mine.count(|sample| sample.is_normal());
        let unknown = mine.len() - known;
        sum.counted += counted;
        sum.known += known;
        sum.unknown += unknown;
        sum.twice += counted.saturating_sub(known + unknown);
        sum.lost += known.saturating_sub(counted);
    }
    let Charges { counted, known, unknown, twice, lost } = sum;
    let of = format!("Redis counts {counted}, callers {known} and perhaps {unknown}");
    row.must("double charges 0", format!("{twice}: {of}"), twice == 0 && counted > 0);
    match losses {
        Losses::Never => row.must("lost charges 0", lost, lost == 0),
        Losses::WithTheMaster => row.note(format!("{lost} charges lost with the master")),
    }
}
