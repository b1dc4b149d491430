//! Admission control: sheds calls that would miss their deadline.
//!
//! A worker that admits more calls than it can process responds later and later, until every response is late and all
//! work is wasted. The queue delay of a new call is estimated from the calls already admitted and the average CPU time
//! of a call. The larger its share of the caller's timeout, the less is done for the call: first the store is skipped,
//! so that each limit applies its `on_store_error` policy at a fraction of the cost; and when even that would take too
//! long, the call is rejected immediately.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::HeaderMap;
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeMetrics};

use super::deadline;

/// Largest queue delay at which the store is still called, in percent of the caller's timeout.
const STORE_PERCENT: u32 = 10;

/// Largest queue delay at which a call is still admitted, in percent of the caller's timeout. It may have waited for as
/// long before it was read, and its response may before it is written.
const ADMISSION_PERCENT: u32 = 16;

/// Queue delays below this are always acceptable.
const NEGLIGIBLE_DELAY: Duration = Duration::from_millis(1);

/// Shortest time between two log lines about overload.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Work units of a completed call, and of a rejected one, which costs a fraction.
const CALL_UNITS: usize = 8;
const REJECTION_UNITS: usize = 1;

/// Work units between two measurements of the cost of a call.
const SAMPLE_UNITS: usize = 64 * CALL_UNITS;

/// Divisor of a new sample in the moving average.
const SMOOTHING: u64 = 4;

/// Admission control of one worker.
#[derive(Debug, Default)]
pub(super) struct AdmissionControl {
    /// Admitted calls that occupy the worker.
    active: AtomicUsize,
    /// Work units completed since the last sample.
    completed_units: AtomicUsize,
    /// Moving average of the CPU time of a call, in nanoseconds.
    call_cost: AtomicU64,
    last_sample: Mutex<Option<BusySample>>,
    warned_at: Mutex<Option<Instant>>,
}

/// Busy time of the worker's runtime at the last sample.
#[derive(Debug)]
struct BusySample {
    metrics: RuntimeMetrics,
    busy: Duration,
    at: Instant,
}

/// Permit of an admitted call, held while it is processed.
#[derive(Debug)]
pub(super) struct Permit {
    control: Arc<AdmissionControl>,
    /// Whether there is time to call the store.
    pub(super) has_store_time: bool,
    pub(super) admitted_at: Instant,
    state: PermitState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PermitState {
    Active,
    Paused,
}

/// Rejection of a call: its deadline would pass before the worker gets to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overloaded;

impl AdmissionControl {
    /// Admits a call with these headers if it can be answered before its deadline. A call without a deadline is always
    /// admitted.
    pub(super) fn admit(self: &Arc<Self>, headers: &HeaderMap) -> Result<Permit, Overloaded> {
        if self.completed_units.load(Ordering::Relaxed) >= SAMPLE_UNITS {
            self.sample();
        }
        let has_store_time = self.has_store_time(headers).inspect_err(|Overloaded| {
            self.completed_units.fetch_add(REJECTION_UNITS, Ordering::Relaxed);
        })?;
        self.active.fetch_add(1, Ordering::Relaxed);
        Ok(Permit {
            control: Arc::clone(self),
            has_store_time,
            admitted_at: Instant::now(),
            state: PermitState::Active,
        })
    }

    fn has_store_time(&self, headers: &HeaderMap) -> Result<bool, Overloaded> {
        let calls = self.active.load(Ordering::Relaxed) as u64;
        let delay = Duration::from_nanos(calls.saturating_mul(self.call_cost.load(Ordering::Relaxed)));
        if delay < NEGLIGIBLE_DELAY {
            return Ok(true);
        }
        let Some(timeout) = deadline::grpc_timeout(headers) else { return Ok(true) };
        if delay <= deadline::percent_of(timeout, STORE_PERCENT) {
            return Ok(true);
        }
        if delay <= deadline::percent_of(timeout, ADMISSION_PERCENT) {
            return Ok(false);
        }
        self.warn(delay);
        Err(Overloaded)
    }

    /// Logs the overload, at most once per interval.
    fn warn(&self, queue_delay: Duration) {
        let mut warned_at = self.warned_at.lock();
        if warned_at.is_none_or(|warned_at| warned_at.elapsed() > WARN_INTERVAL) {
            *warned_at = Some(Instant::now());
            tracing::warn!(?queue_delay, "worker overloaded; shedding calls");
        }
    }

    /// Measures the cost of a call from the busy time of the worker's runtime.
    fn sample(&self) {
        let mut last = self.last_sample.lock();
        let Some(sample) = &mut *last else {
            let metrics = Handle::try_current().map(|handle| handle.metrics());
            *last = metrics.ok().map(BusySample::now);
            return;
        };
        let now = sample.metrics.worker_total_busy_duration(0);
        let spent = now.saturating_sub(sample.busy);
        // The runtime updates its counters only now and then, and a connection may bring many calls at once.
        if spent.is_zero() {
            return;
        }
        // A worker that is often idle does other things too, and has time for them.
        let has_slack = spent.saturating_mul(2) < sample.at.elapsed();
        sample.busy = now;
        sample.at = Instant::now();
        self.record(spent, self.completed_units.swap(0, Ordering::Relaxed), has_slack);
    }

    /// Adds a sample to the moving average: `units` of work in `spent`, an upper bound if the worker had slack for other
    /// work.
    fn record(&self, spent: Duration, units: usize, has_slack: bool) {
        let cost = spent.as_nanos().saturating_mul(CALL_UNITS as u128);
        let cost = cost.checked_div(units as u128).unwrap_or_default();
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        let before = self.call_cost.load(Ordering::Relaxed);
        let cost = if has_slack { cost.min(before) } else { cost };
        let rest = before.saturating_sub(before.checked_div(SMOOTHING).unwrap_or_default());
        let average = rest.saturating_add(cost.checked_div(SMOOTHING).unwrap_or_default());
        self.call_cost.store(average, Ordering::Relaxed);
    }
}

impl BusySample {
    fn now(metrics: RuntimeMetrics) -> Self {
        Self { busy: metrics.worker_total_busy_duration(0), metrics, at: Instant::now() }
    }
}

impl Permit {
    /// Stops counting the call while it waits for input or for the store.
    pub(super) fn pause(&mut self) {
        if self.state == PermitState::Active {
            self.state = PermitState::Paused;
            self.control.active.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts the call again.
    pub(super) fn resume(&mut self) {
        if self.state == PermitState::Paused {
            self.state = PermitState::Active;
            self.control.active.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pause();
        self.control.completed_units.fetch_add(CALL_UNITS, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(timeout: &'static str) -> HeaderMap {
        let name = deadline::GRPC_TIMEOUT.parse().expect("a name");
        HeaderMap::from_iter([(name, HeaderValue::from_static(timeout))])
    }

    /// Admission control of a worker that spends 100 µs on a call.
    fn admission_control() -> Arc<AdmissionControl> {
        let control = Arc::new(AdmissionControl::default());
        (0..100).for_each(|_| control.record(Duration::from_millis(10), 100 * CALL_UNITS, false));
        control
    }

    #[test]
    fn rising_load_skips_the_store_first_and_then_sheds_calls() {
        let (control, headers) = (admission_control(), headers("20m"));
        let permits: Vec<_> = (0..1_000).map_while(|_| control.admit(&headers).ok()).collect();
        let with_store = permits.iter().filter(|permit| permit.has_store_time).count();
        assert!((20..=21).contains(&with_store), "2 ms of 20: {with_store}");
        assert!((32..=33).contains(&permits.len()), "3.2 ms of 20: {}", permits.len());
        drop(permits);
        assert!(control.admit(&headers).is_ok_and(|permit| permit.has_store_time), "all are done");
    }

    #[test]
    fn paused_permits_keep_no_calls_out() {
        let (control, headers) = (admission_control(), headers("20m"));
        let mut permits: Vec<_> = (0..1_000).map_while(|_| control.admit(&headers).ok()).collect();
        assert!(control.admit(&headers).is_err());
        permits.iter_mut().for_each(Permit::pause);
        assert!(control.admit(&headers).is_ok_and(|permit| permit.has_store_time));
        permits.iter_mut().for_each(Permit::resume);
        assert!(control.admit(&headers).is_err());
        drop(permits);
        assert_eq!(control.active.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn calls_with_a_distant_deadline_or_without_one_are_not_shed() {
        let control = admission_control();
        let permits: Vec<_> = (0..1_000).map(|_| control.admit(&headers("1S")).expect("admitted")).collect();
        assert!(permits.iter().all(|permit| permit.has_store_time));
        assert!(control.admit(&HeaderMap::new()).is_ok_and(|permit| permit.has_store_time));
        assert!(control.admit(&headers("20m")).is_err());
    }

    #[test]
    fn the_average_cost_follows_the_samples() {
        let control = admission_control();
        let cost = || control.call_cost.load(Ordering::Relaxed);
        assert!((99_000..=100_000).contains(&cost()), "{}", cost());
        (0..20).for_each(|_| control.record(Duration::from_micros(64 * 5), 64 * CALL_UNITS, true));
        assert!(cost() < 6_000, "{}", cost());
        control.record(Duration::ZERO, 0, false);
    }

    #[tokio::test]
    async fn the_cost_is_measured_from_the_busy_time_of_the_runtime() {
        let control = Arc::new(AdmissionControl::default());
        for _ in 0..SAMPLE_UNITS {
            let permit = control.admit(&HeaderMap::new());
            let started = Instant::now();
            while started.elapsed() < Duration::from_micros(50) {}
            drop(permit);
            tokio::task::yield_now().await;
        }
        assert!(control.call_cost.load(Ordering::Relaxed) > 10_000, "{control:?}");
    }
}
