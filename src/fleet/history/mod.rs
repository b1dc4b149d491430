//! History of the last minutes, of this process and of all instances, for the dashboard.

mod intervals;
mod totals;

use std::{collections::VecDeque, time::Instant};

use parking_lot::Mutex;
use serde::Serialize;
use tollgate_core::clock::Clock;
use tollgate_limiter as limiter;
use tollgate_metrics::publish;
use tollgate_store as store;

pub(super) use self::{
    intervals::Intervals,
    totals::{IntervalTotals, sample_of},
};
use crate::service::metrics::{REQUEST_DURATION, ResponseCounts, Times};

/// Seconds between two samples.
pub const INTERVAL_S: u64 = 5;

/// Number of samples that are kept: 15 minutes.
pub(super) const MAX_SAMPLES: usize = 180;

/// Maximum number of intervals that wait to be published; older ones are dropped.
const MAX_UNPUBLISHED: usize = 4;

/// Totals of one interval. Requests, not descriptors; amounts, not rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// The interval's end, in milliseconds since 1970; never before that of the sample before it.
    pub at_ms: u64,
    /// Its length in milliseconds: more than [`INTERVAL_S`] if the process was busy.
    pub elapsed_ms: u64,
    /// Number of instances whose totals these are.
    pub instances: u64,
    /// ResponseCounts requests, errors included.
    pub decisions: u64,
    /// Requests over a limit.
    pub over_limit: u64,
    /// Failed requests.
    pub errors: u64,
    /// Requests in which the store did not decide everything.
    pub degraded: u64,
    /// Requests that a deny list denied.
    pub list_denied: u64,
    /// Requests that an allow list let pass.
    pub list_allowed: u64,
    /// Median time of gRPC requests, in microseconds; `None` without requests.
    pub call_p50_us: Option<u64>,
    /// 99th percentile of the times of gRPC requests, in microseconds.
    pub call_p99_us: Option<u64>,
    /// Median time of decisions that waited for Redis, in microseconds.
    pub store_p50_us: Option<u64>,
    /// 99th percentile of the times of decisions that waited for Redis, in microseconds.
    pub store_p99_us: Option<u64>,
}

/// The samples, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct History {
    /// Seconds between two samples.
    pub interval_s: u64,
    /// The samples.
    pub samples: Vec<Sample>,
}

/// Totals at a moment, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Totals {
    at_ms: u64,
    at: Instant,
    responses: ResponseCounts,
    /// Requests that lists allowed, and denied.
    listed: [u64; 2],
    calls: Times,
    store: Times,
}

/// Samples of the last minutes.
#[derive(Debug)]
struct Ring {
    latest: Option<Totals>,
    samples: VecDeque<Sample>,
    /// Intervals to be published to other instances, oldest first.
    unpublished: VecDeque<IntervalTotals>,
}

static RING: Mutex<Ring> =
    Mutex::new(Ring { latest: None, samples: VecDeque::new(), unpublished: VecDeque::new() });

/// The last 15 minutes.
pub fn history() -> History {
    History { interval_s: INTERVAL_S, samples: RING.lock().samples.iter().copied().collect() }
}

/// The intervals that ended since the last call, oldest first.
pub(super) fn take_unpublished() -> VecDeque<IntervalTotals> {
    std::mem::take(&mut RING.lock().unpublished)
}

/// Ends an interval; to be called every [`INTERVAL_S`].
pub(crate) fn sample() {
    publish();
    let totals = Totals {
        at_ms: Clock::System.now().as_micros() / 1_000,
        at: Instant::now(),
        responses: ResponseCounts::read(),
        listed: limiter::metrics::listed_requests(),
        calls: REQUEST_DURATION.observed(),
        store: store::metrics::DURATION.observed(),
    };
    RING.lock().record(totals);
}

impl Ring {
    /// Adds the interval that ends with these totals.
    fn record(&mut self, mut now: Totals) {
        // Clocks may be set back.
        now.at_ms = now.at_ms.max(self.latest.map_or(0, |before| before.at_ms));
        let Some(before) = self.latest.replace(now) else { return };
        if self.samples.len() >= MAX_SAMPLES {
            self.samples.pop_front();
        }
        let sample = now.since(&before);
        if self.unpublished.len() >= MAX_UNPUBLISHED {
            self.unpublished.pop_front();
        }
        let (calls, store) = (now.calls.since(&before.calls), now.store.since(&before.store));
        self.unpublished.push_back(IntervalTotals::of(&sample, &calls, &store));
        self.samples.push_back(sample);
    }
}

impl Totals {
    fn since(&self, before: &Self) -> Sample {
        let requests =
            |of: fn(&ResponseCounts) -> u64| of(&self.responses).saturating_sub(of(&before.responses));
        let [allowed, denied] = self.listed;
        let [allowed_before, denied_before] = before.listed;
        let (calls, store) = (self.calls.since(&before.calls), self.store.since(&before.store));
        Sample {
            at_ms: self.at_ms,
            elapsed_ms: u64::try_from(self.at.saturating_duration_since(before.at).as_millis())
                .unwrap_or(u64::MAX),
            instances: 1,
            decisions: requests(|responses| responses.all),
            over_limit: requests(|responses| responses.over_limit),
            errors: requests(|responses| responses.store_errors.saturating_add(responses.other_errors)),
            degraded: requests(|responses| responses.degraded),
            list_denied: denied.saturating_sub(denied_before),
            list_allowed: allowed.saturating_sub(allowed_before),
            call_p50_us: percentile_us(&calls, 50),
            call_p99_us: percentile_us(&calls, 99),
            store_p50_us: percentile_us(&store, 50),
            store_p99_us: percentile_us(&store, 99),
        }
    }
}

/// A percentile in microseconds.
fn percentile_us(times: &Times, percent: u64) -> Option<u64> {
    times.percentile(percent).map(|nanoseconds| nanoseconds / 1_000)
}

#[cfg(test)]
mod tests {
    use std::{sync::LazyLock, time::Duration};

    use super::*;

    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

    fn totals(at_ms: u64, all: u64, listed: [u64; 2]) -> Totals {
        let responses = ResponseCounts {
            all,
            over_limit: all / 2,
            store_errors: all / 10,
            other_errors: 1,
            degraded: all / 5,
        };
        // Time goes on, whatever the clock is set to.
        let at = *BEGUN + Duration::from_millis(all);
        Totals {
            at_ms,
            at,
            responses,
            listed,
            calls: REQUEST_DURATION.observed(),
            store: store::metrics::DURATION.observed(),
        }
    }

    #[test]
    fn a_sample_has_the_increase_since_the_one_before() {
        let mut ring = Ring { latest: None, samples: VecDeque::new(), unpublished: VecDeque::new() };
        ring.record(totals(5_000, 100, [1, 2]));
        assert!(ring.samples.is_empty(), "of the time before it nothing is known");
        (0..100).for_each(|_| store::metrics::DURATION.observe_time(Duration::from_micros(75)));
        ring.record(totals(10_000, 150, [1, 5]));
        let sample = ring.samples.back().expect("one");
        let counted = (sample.decisions, sample.over_limit, sample.errors, sample.degraded);
        assert_eq!((sample.at_ms, counted), (10_000, (50, 25, 5, 10)));
        assert_eq!((sample.list_denied, sample.list_allowed, sample.elapsed_ms), (3, 0, 50));
        ring.record(totals(9_000, 160, [1, 5]));
        let later = ring.samples.back().expect("one");
        assert_eq!((later.at_ms, later.elapsed_ms), (10_000, 10), "the clock was set back");
        let sample = ring.samples.front().expect("the first");
        // Between 50 and 100 µs, whatever other tests do.
        assert!(sample.store_p50_us.is_some_and(|micros| (50..=100).contains(&micros)), "{sample:?}");
    }

    #[test]
    fn only_the_last_minutes_are_kept() {
        let mut ring = Ring { latest: None, samples: VecDeque::new(), unpublished: VecDeque::new() };
        (0..1_000).for_each(|round| ring.record(totals(round * 5_000, round, [0, 0])));
        assert_eq!((ring.samples.len(), ring.unpublished.len()), (MAX_SAMPLES, MAX_UNPUBLISHED));
        assert_eq!(ring.samples.front().expect("the oldest").at_ms, 820 * 5_000);
        assert!(ring.samples.iter().all(|sample| sample.decisions == 1));
    }
}
