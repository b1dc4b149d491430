//! Admissions of all regions together, in true time, and how far that is over the limit.

use std::collections::{BTreeMap, VecDeque};

use super::cell::release;
use crate::terms::{LimitKind, Moment};

/// Judge of one run.
#[derive(Debug)]
pub(crate) struct Oracle {
    kind: LimitKind,
    limit: u64,
    /// Hits by window label.
    windows: BTreeMap<u64, u64>,
    /// Hits of fixed windows by true time.
    true_windows: BTreeMap<u64, u64>,
    /// True times of logged hits.
    log: VecDeque<u64>,
    /// Number and true time of expiry of permits.
    held: VecDeque<(u64, u64)>,
    /// Tokens of a bucket of the whole limit in millionths, and when they were computed.
    tokens: i128,
    refilled_at: u64,
    burst: i128,
    /// The most hits over the limit at any time.
    pub(crate) over: u64,
    /// As `over`, by true windows in place of labels.
    pub(crate) true_over: u64,
}

impl Oracle {
    pub(crate) fn new(kind: LimitKind, limit: u32, burst: u64) -> Self {
        let burst = i128::from(burst) * 1_000_000;
        Self {
            kind,
            limit: limit.into(),
            windows: BTreeMap::new(),
            true_windows: BTreeMap::new(),
            log: VecDeque::new(),
            held: VecDeque::new(),
            tokens: burst,
            refilled_at: 0,
            burst,
            over: 0,
            true_over: 0,
        }
    }

    /// Judges an admission at the true time `time`, which its region sees as `now`.
    pub(crate) fn admitted(&mut self, time: u64, now: Moment, hits: u64, id: u64) {
        match self.kind {
            LimitKind::FixedWindow { .. } | LimitKind::SlidingWindow { .. } => {
                let total = add(&mut self.windows, now.label, hits);
                self.over = self.over.max(total.saturating_sub(self.limit));
                let total = add(&mut self.true_windows, time / self.kind.window_micros(), hits);
                self.true_over = self.true_over.max(total.saturating_sub(self.limit));
            }
            LimitKind::SlidingWindowLog { .. } => {
                while self.log.front().is_some_and(|logged| logged + self.kind.window_micros() <= time) {
                    self.log.pop_front();
                }
                self.log.extend((0..hits).map(|_| time));
                self.over = self.over.max((self.log.len() as u64).saturating_sub(self.limit));
            }
            LimitKind::Concurrency { lease_ttl } => {
                while self.held.front().is_some_and(|(_, expires_at)| *expires_at <= time) {
                    self.held.pop_front();
                }
                self.held.extend((0..hits).map(|_| (id, time + lease_ttl)));
                self.over = self.over.max((self.held.len() as u64).saturating_sub(self.limit));
            }
            LimitKind::TokenBucket { .. } => {
                let gained = i128::from(time - self.refilled_at) * i128::from(self.limit) * 1_000_000;
                self.tokens = self.burst.min(self.tokens + gained / i128::from(self.kind.window_micros()));
                self.refilled_at = time;
                self.tokens -= i128::from(hits) * 1_000_000;
                // Each refill above is rounded down by up to a millionth; a thousandth of a hit is no admission.
                if self.tokens < -1_000 {
                    let over = u64::try_from((-self.tokens + 999_999) / 1_000_000).unwrap_or(u64::MAX);
                    self.over = self.over.max(over);
                }
            }
        }
    }

    pub(crate) fn released(&mut self, id: u64) {
        release(&mut self.held, id);
    }
}

/// Adds to a total, of which the last few are kept.
fn add(totals: &mut BTreeMap<u64, u64>, label: u64, hits: u64) -> u64 {
    let total = totals.entry(label).or_default();
    *total += hits;
    let total = *total;
    while totals.len() > 32 {
        totals.pop_first();
    }
    total
}
