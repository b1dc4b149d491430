//! Checks that each counter admitted at most its limit in each second.

use std::{collections::HashMap, ops::Range, time::Duration};

use super::samples::{Outcome, Samples};

/// The limit of a counter per second; the load exceeds it.
const LIMIT: usize = 20;

/// Admissions per window of the counters.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    /// Windows without a fault in which Redis decided every request.
    pub(super) whole: usize,
    /// Hits admitted beyond the limit in these windows.
    pub(super) beyond: usize,
    /// Windows without a fault in which Redis was nevertheless too slow for some requests.
    pub(super) mixed: usize,
}

/// Examines the windows that do not overlap `touched`; samples are relative to `origin`.
pub(super) fn admissions(samples: &Samples, origin: Duration, touched: &[Range<Duration>]) -> Admissions {
    let mut admitted = HashMap::<(usize, u64), (usize, bool)>::new();
    for sample in samples.iter() {
        let (sent, answered) = (origin + sample.due, origin + sample.answered());
        for second in sent.as_secs()..=answered.as_secs() {
            let (count, is_mixed) = admitted.entry((sample.key, second)).or_default();
            *is_mixed |= !sample.is_normal();
            // A request in flight at a window's end may belong to either.
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
