//! History of the last minutes, of this process and of all instances, for the dashboard.

use std::{collections::VecDeque, time::Instant};

use parking_lot::Mutex;
use serde::Serialize;
use tollgate_control::Totals;
use tollgate_core::clock::now_ms;
use tollgate_limiter as limiter;
use tollgate_metrics::publish;
use tollgate_serve::service::metrics::{REQUEST_DURATION, ResponseCounts, Times};
use tollgate_store::metrics::{self as store_metrics, TIME_BOUNDS, TIME_BUCKETS};

/// Seconds between two samples.
pub const INTERVAL_S: u64 = 5;

const INTERVAL_MS: u64 = INTERVAL_S * 1_000;

/// Longest distance, in milliseconds, between the middle of a sample and the middle of its interval. Above half an
/// interval, so that a sample that ends near the boundary of two intervals is not counted in one and then in the other.
const MAX_DISTANCE_MS: u64 = INTERVAL_MS * 3 / 4;

/// Number of samples that are kept: 15 minutes.
pub(super) const MAX_SAMPLES: usize = 180;

/// Maximum number of intervals that wait to be published; older ones are dropped.
const MAX_UNPUBLISHED: usize = 4;

/// Name of the number of instances.
const INSTANCES: &str = "instances";
/// Beginning of the names of buckets: of requests, and of decisions that waited for Redis. Their largest value in
/// nanoseconds follows, or [`ABOVE`]. Other releases may have other bounds.
const CALLS: &str = "call_le_";
const STORE: &str = "store_le_";
const ABOVE: &str = "inf";

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

/// Totals since the start, at a moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// Time in milliseconds since 1970.
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
    latest: Option<Moment>,
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
pub fn sample() {
    publish();
    let now = Moment {
        at_ms: now_ms(),
        at: Instant::now(),
        responses: ResponseCounts::read(),
        listed: limiter::metrics::listed_requests(),
        calls: REQUEST_DURATION.observed(),
        store: store_metrics::DURATION.observed(),
    };
    RING.lock().record(now);
}

impl Ring {
    /// Adds the interval that ends with these totals.
    fn record(&mut self, mut now: Moment) {
        // Clocks may be set back.
        now.at_ms = now.at_ms.max(self.latest.map_or(0, |before| before.at_ms));
        let Some(before) = self.latest.replace(now) else { return };
        if self.samples.len() >= MAX_SAMPLES {
            self.samples.pop_front();
        }
        let (calls, store) = (now.calls.since(&before.calls), now.store.since(&before.store));
        let sample = now.since(&before, &calls, &store);
        if self.unpublished.len() >= MAX_UNPUBLISHED {
            self.unpublished.pop_front();
        }
        self.unpublished.push_back(IntervalTotals::of(&sample, &calls, &store));
        self.samples.push_back(sample);
    }
}

impl Moment {
    fn since(&self, before: &Self, calls: &Times, store: &Times) -> Sample {
        let requests =
            |of: fn(&ResponseCounts) -> u64| of(&self.responses).saturating_sub(of(&before.responses));
        let [allowed, denied] = self.listed;
        let [allowed_before, denied_before] = before.listed;
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
            call_p50_us: percentile_us(calls, 50),
            call_p99_us: percentile_us(calls, 99),
            store_p50_us: percentile_us(store, 50),
            store_p99_us: percentile_us(store, 99),
        }
    }
}

/// A percentile in microseconds.
fn percentile_us(times: &Times, percent: u64) -> Option<u64> {
    times.percentile(percent).map(|nanoseconds| nanoseconds / 1_000)
}

/// Totals of one instance over one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IntervalTotals {
    /// The interval's end by this process' clock, in milliseconds since 1970.
    pub(super) at_ms: u64,
    pub(super) totals: Totals,
}

impl IntervalTotals {
    fn of(sample: &Sample, calls: &Times, store: &Times) -> Self {
        let mut totals = Totals::from([(INSTANCES.to_owned(), 1)]);
        let counts = counts(sample).into_iter().map(|(name, count)| (name.to_owned(), count));
        let buckets = [(CALLS, calls), (STORE, store)].into_iter().flat_map(|(start, times)| {
            times.buckets().map(move |(bound, count)| {
                let bound = bound.map_or_else(|| ABOVE.to_owned(), |bound| bound.to_string());
                (format!("{start}{bound}"), count)
            })
        });
        totals.extend(counts.chain(buckets).filter(|(_, count)| *count > 0));
        Self { at_ms: sample.at_ms, totals }
    }
}

const fn counts(sample: &Sample) -> [(&'static str, u64); 6] {
    [
        ("decisions", sample.decisions),
        ("over_limit", sample.over_limit),
        ("errors", sample.errors),
        ("degraded", sample.degraded),
        ("list_denied", sample.list_denied),
        ("list_allowed", sample.list_allowed),
    ]
}

/// The sample of an interval with these totals of all instances, unless there are none.
pub(super) fn sample_of(interval: u64, totals: &Totals) -> Option<Sample> {
    let total = |name: &str| totals.get(name).copied().unwrap_or_default();
    let instances = Some(total(INSTANCES)).filter(|instances| *instances > 0)?;
    let (calls, store) = (times(totals, CALLS), times(totals, STORE));
    Some(Sample {
        at_ms: Intervals::end_ms(interval),
        elapsed_ms: INTERVAL_MS,
        instances,
        decisions: total("decisions"),
        over_limit: total("over_limit"),
        errors: total("errors"),
        degraded: total("degraded"),
        list_denied: total("list_denied"),
        list_allowed: total("list_allowed"),
        call_p50_us: percentile_us(&calls, 50),
        call_p99_us: percentile_us(&calls, 99),
        store_p50_us: percentile_us(&store, 50),
        store_p99_us: percentile_us(&store, 99),
    })
}

/// The histogram whose buckets have this beginning. A bucket with another bound counts in the next larger one.
fn times(totals: &Totals, start: &str) -> Times {
    let (mut buckets, mut above) = ([0_u64; TIME_BUCKETS], 0_u64);
    for (name, count) in totals {
        let Some(bound) = name.strip_prefix(start) else { continue };
        let bound = bound.parse().unwrap_or(u64::MAX);
        let mut larger = TIME_BOUNDS.iter().zip(&mut buckets).filter(|(of_bucket, _)| bound <= **of_bucket);
        let bucket = larger.next().map_or(&mut above, |(_, bucket)| bucket);
        *bucket = bucket.saturating_add(*count);
    }
    Times::of(TIME_BOUNDS, buckets, above)
}

/// Assigns an interval to each sample of an instance.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    last: Option<u64>,
}

impl Intervals {
    /// The interval of a sample that ends at this time: the one after that of the sample before it, unless another one is
    /// much nearer.
    pub(super) fn next(&mut self, end_ms: u64) -> u64 {
        let nearest = Self::at(end_ms);
        let middle = end_ms.saturating_sub(INTERVAL_MS / 2);
        let is_near = |interval: &u64| {
            let its_middle = interval.saturating_mul(INTERVAL_MS).saturating_add(INTERVAL_MS / 2);
            its_middle.abs_diff(middle) <= MAX_DISTANCE_MS
        };
        let following = self.last.map(|last| last + 1).filter(is_near);
        *self.last.insert(following.unwrap_or(nearest))
    }

    /// The interval whose middle is nearest to that of a sample which ends at this time.
    pub(super) const fn at(end_ms: u64) -> u64 {
        end_ms.saturating_sub(INTERVAL_MS / 2) / INTERVAL_MS
    }

    /// The end of an interval, in milliseconds since 1970.
    pub(super) const fn end_ms(interval: u64) -> u64 {
        interval.saturating_add(1).saturating_mul(INTERVAL_MS)
    }
}

#[cfg(test)]
mod tests;
