//! Whether each counter admitted no more in a second than it may.

use std::{collections::HashMap, ops::Range, time::Duration};

use super::samples::{Outcome, Samples};

/// What a counter may have in a second; it is asked for more.
const LIMIT: usize = 20;

/// What windows of counters admitted.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    /// Those in which no fault was, and Redis gave every answer.
    pub(super) whole: usize,
    /// Hits that these admitted beyond the limit.
    pub(super) beyond: usize,
    /// Those in which no fault was, and Redis was too slow for some answers nevertheless.
    pub(super) mixed: usize,
}

/// Looks at the windows that none of `touched` touches; samples go by a time that began at `origin`.
pub(super) fn admissions(samples: &Samples, origin: Duration, touched: &[Range<Duration>]) -> Admissions {
    let mut admitted = HashMap::<(usize, u64), (usize, bool)>::new();
    for sample in samples.iter() {
        let (sent, answered) = (origin + sample.due, origin + sample.answered());
        for second in sent.as_secs()..=answered.as_secs() {
            let (count, is_mixed) = admitted.entry((sample.key, second)).or_default();
            *is_mixed |= !sample.is_normal();
            // One that was under way at a window's end may belong to either.
            *count += usize::from(sent.as_secs() == answered.as_secs() && sample.outcome == Outcome::Ok);
        }
    }
    let mut windows = Admissions::default();
    for ((_, second), (count, is_mixed)) in admitted {
        let begin = Duration::from_secs(second).saturating_sub(origin);
        let end = begin + Duration::from_secs(1);
        match touched.iter().all(|range| end <= range.start || begin >= range.end) {
            true if is_mixed => windows.mixed += 1,
            true => {
                windows.whole += 1;
                windows.beyond += count.saturating_sub(LIMIT);
            }
            false => {}
        }
    }
    windows
}
