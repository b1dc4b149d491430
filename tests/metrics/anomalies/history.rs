//! Counters of a domain, as promtool reads them.

use std::fmt::Write as _;

use super::traffic::Traffic;

/// A factor of the hits, and what is added to the denied share.
#[derive(Clone, Copy)]
pub(super) struct Change {
    pub(super) hits: f64,
    pub(super) denied: f64,
}

impl Change {
    pub(super) const NONE: Self = Self { hits: 1.0, denied: 0.0 };
}

/// A domain's counters since minute 0.
#[derive(Clone)]
pub(super) struct History {
    pub(super) traffic: Traffic,
    minute: u64,
    hits: Samples,
    denied: Samples,
}

impl History {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            traffic: Traffic::by_chance(seed),
            minute: 0,
            hits: Samples::default(),
            denied: Samples::default(),
        }
    }

    /// Continues to a minute, with a change by the minutes since now.
    pub(super) fn run_until(&mut self, end: u64, change: fn(u64) -> Change) {
        let begin = self.minute;
        for minute in begin..end {
            let Change { hits, denied } = change(minute - begin);
            let counts = self.traffic.counts(minute, hits, denied);
            self.hits.add(minute + 1, counts.hits);
            self.denied.add(minute + 1, counts.denied);
        }
        self.minute = end;
    }

    /// Series of the counters, each with its values.
    pub(super) fn series(self, domain: &str) -> [(String, String); 2] {
        [("hits", self.hits), ("over_limit", self.denied)].map(|(name, samples)| {
            (format!("tollgate_rule_{name}_total{{domain=\"{domain}\"}}"), samples.values)
        })
    }
}

/// Values of a counter, of two minutes in five: the first and the last within the range of a rate.
#[derive(Clone)]
struct Samples {
    total: u64,
    values: String,
}

impl Default for Samples {
    fn default() -> Self {
        Self { total: 0, values: "0".to_owned() }
    }
}

impl Samples {
    fn add(&mut self, minute: u64, count: u64) {
        self.total += count;
        let gap = match minute % 5 {
            0 => " _x3",
            1 => "",
            _ => return,
        };
        write!(self.values, "{gap} {}", self.total).expect("a string");
    }
}
