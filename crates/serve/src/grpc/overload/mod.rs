//! Admission control: sheds calls that would miss their deadline, which follows from their `grpc-timeout`.
//!
//! A worker that admits more calls than it can process responds later and later, until every response is late and all
//! work is wasted. The time to the response of a new call is estimated from the time that it waited in the socket, the
//! calls already admitted and the average CPU time of a call. The larger its share of the caller's timeout, the less is
//! done for the call: first the store is skipped, so that each limit applies its `on_store_error` policy without the wait
//! for a reply; and when even that would take too long, the call is rejected immediately. The estimate is made again when
//! the call's task runs, from the time that it actually waited.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hyper::header::{HeaderMap, HeaderName};
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeMetrics};
use tollgate_gate::parse_timeout;

use super::responses::nanos_of;
use crate::net::read_budget::ReadBudget;

/// Largest expected time to a response at which the store is still called, in percent of the caller's timeout.
const STORE_PERCENT: u32 = 25;

/// Largest expected time to a response at which a call is still admitted, in percent of the caller's timeout. The rest is
/// for the network, the store, and other processes on the machine.
const ADMISSION_PERCENT: u32 = 50;

/// Queues that a call waits in on a worker: for its task, and for the connection to write its response.
const QUEUES: u32 = 2;

/// Interval at which a busy runtime looks for events: 61 tasks.
const EVENT_INTERVAL: Duration = Duration::from_micros(500);

/// Expected times below this are always acceptable: a millisecond in each queue.
const NEGLIGIBLE_DELAY: Duration = Duration::from_millis(2);

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
    /// Latest time from the admission of a call to its processing, in nanoseconds, and when it was measured, in
    /// nanoseconds since the first call.
    queue_wait: AtomicU64,
    queue_wait_at: AtomicU64,
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
    pub(super) admitted_at: Instant,
    /// Bound on the time that the call waited before it was admitted.
    waited: Duration,
    /// Whether the expected time to a response is more than negligible.
    is_contended: bool,
    /// Timeout of the caller of a contended call.
    timeout: Option<Duration>,
    /// Whether there is time to call the store.
    has_store_time: bool,
    state: PermitState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PermitState {
    Active,
    Paused,
    /// Its call was shed.
    Rejected,
}

/// Rejection of a call: its deadline would pass before the worker gets to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overloaded;

impl AdmissionControl {
    /// Admits a call with these headers, on a connection with this budget, if it can be answered before its deadline. A
    /// call without a deadline is always admitted.
    pub(super) fn admit(
        self: &Arc<Self>,
        headers: &HeaderMap,
        read_budget: &ReadBudget,
        now: Instant,
    ) -> Result<Permit, Overloaded> {
        if self.completed_units.load(Ordering::Relaxed) >= SAMPLE_UNITS {
            self.sample();
        }
        let waited = self.waited(read_budget, now);
        let expected = waited + self.queue_delay();
        let is_contended = expected >= NEGLIGIBLE_DELAY;
        let timeout = if is_contended { grpc_timeout(headers) } else { None };
        let has_store_time = self.has_store_time(expected, timeout)?;
        self.active.fetch_add(1, Ordering::Relaxed);
        Ok(Permit {
            control: Arc::clone(self),
            admitted_at: now,
            waited,
            is_contended,
            timeout,
            has_store_time,
            state: PermitState::Active,
        })
    }

    /// Bound on the time that a call waited which this poll of the connection has read.
    fn waited(&self, read_budget: &ReadBudget, now: Instant) -> Duration {
        read_budget.age(now, self.wakeup_delay(now))
    }

    /// Expected time to the response of such a call.
    fn expected(&self, read_budget: &ReadBudget, now: Instant) -> Duration {
        self.waited(read_budget, now) + self.queue_delay()
    }

    /// Estimate of the time that the worker's queues take for a new call.
    fn queue_delay(&self) -> Duration {
        let calls = self.active.load(Ordering::Relaxed) as u64;
        Duration::from_nanos(calls * self.call_cost.load(Ordering::Relaxed)) * QUEUES
    }

    /// Bound on the time from the arrival of bytes on an idle connection to the poll of its task: the worker's queue as it
    /// was measured last, less the time since, and the interval at which the runtime looks for events.
    fn wakeup_delay(&self, now: Instant) -> Duration {
        let measured_at = self.queue_wait_at.load(Ordering::Relaxed);
        let since = Duration::from_nanos(nanos_of(now).saturating_sub(measured_at));
        let wait = Duration::from_nanos(self.queue_wait.load(Ordering::Relaxed));
        wait.saturating_sub(since) + EVENT_INTERVAL
    }

    fn has_store_time(&self, expected: Duration, timeout: Option<Duration>) -> Result<bool, Overloaded> {
        let Some(timeout) = timeout else { return Ok(true) };
        if expected <= percent_of(timeout, STORE_PERCENT) {
            return Ok(true);
        }
        if expected <= percent_of(timeout, ADMISSION_PERCENT) {
            return Ok(false);
        }
        self.warn(expected);
        self.completed_units.fetch_add(REJECTION_UNITS, Ordering::Relaxed);
        Err(Overloaded)
    }

    /// Logs the overload, at most once per interval.
    fn warn(&self, expected_delay: Duration) {
        let mut warned_at = self.warned_at.lock();
        if warned_at.is_none_or(|warned_at| warned_at.elapsed() > WARN_INTERVAL) {
            *warned_at = Some(Instant::now());
            tracing::warn!(?expected_delay, "worker overloaded; shedding calls");
        }
    }

    /// Records the time that a call waited for its task to run.
    fn queue_waited(&self, wait: Duration, now: Instant) {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        self.queue_wait.store(nanos, Ordering::Relaxed);
        self.queue_wait_at.store(nanos_of(now), Ordering::Relaxed);
    }

    /// Measures the cost of a call from the busy time of the worker's runtime.
    fn sample(&self) {
        let mut last = self.last_sample.lock();
        let Some(sample) = &mut *last else {
            let metrics = Handle::try_current().map(|handle| handle.metrics());
            *last = metrics.ok().map(|metrics| BusySample {
                busy: metrics.worker_total_busy_duration(0),
                metrics,
                at: Instant::now(),
            });
            return;
        };
        let now = sample.metrics.worker_total_busy_duration(0);
        let spent = now.saturating_sub(sample.busy);
        // The runtime updates its counters only now and then, and a connection may bring many calls at once.
        if spent.is_zero() {
            return;
        }
        // A worker that is often idle does other things too, and has time for them.
        let has_slack = spent * 2 < sample.at.elapsed();
        sample.busy = now;
        sample.at = Instant::now();
        self.record(spent, self.completed_units.swap(0, Ordering::Relaxed), has_slack);
    }

    /// Adds a sample to the moving average: `units` of work in `spent`, an upper bound if the worker had slack for other
    /// work.
    fn record(&self, spent: Duration, units: usize, has_slack: bool) {
        let cost = spent.as_nanos() * CALL_UNITS as u128;
        let cost = cost.checked_div(units as u128).unwrap_or_default();
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        let before = self.call_cost.load(Ordering::Relaxed);
        let cost = if has_slack { cost.min(before) } else { cost };
        self.call_cost.store(before - before / SMOOTHING + cost / SMOOTHING, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl AdmissionControl {
    /// Admission control of a worker that was seen to spend `cost` on a call.
    pub(in crate::grpc) fn with_cost(cost: Duration) -> Self {
        let control = Self::default();
        (0..100).for_each(|_| control.record(cost, CALL_UNITS, false));
        control
    }
}

impl Permit {
    /// Begins to process the call, unless it waited too long since it was admitted.
    pub(super) fn begin(&mut self) -> Result<(), Overloaded> {
        if self.is_contended { self.begin_at(Instant::now()) } else { Ok(()) }
    }

    fn begin_at(&mut self, now: Instant) -> Result<(), Overloaded> {
        let queued = now.duration_since(self.admitted_at);
        self.control.queue_waited(queued, now);
        self.waited += queued;
        // The response waits in a queue of the same length.
        let expected = self.waited + queued;
        match self.control.has_store_time(expected, self.timeout) {
            Ok(has_time) => self.has_store_time = self.has_store_time && has_time,
            Err(Overloaded) => {
                self.pause();
                self.state = PermitState::Rejected;
                return Err(Overloaded);
            }
        }
        Ok(())
    }

    /// Time that the call has waited, zero if that is negligible; `None` if no time is left to call the store.
    pub(super) fn waited(&self) -> Option<Duration> {
        let waited = if self.waited < NEGLIGIBLE_DELAY { Duration::ZERO } else { self.waited };
        self.has_store_time.then_some(waited)
    }

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
        if self.state != PermitState::Rejected {
            self.control.completed_units.fetch_add(CALL_UNITS, Ordering::Relaxed);
        }
    }
}

/// Header with the caller's timeout.
pub(super) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Timeout that the caller sent, if it is readable.
pub(super) fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    headers.get(GRPC_TIMEOUT).and_then(|header| parse_timeout(header.as_bytes()))
}

pub(super) fn percent_of(timeout: Duration, percent: u32) -> Duration {
    timeout * percent / 100
}

/// Largest expected time to a response at which a call is left to HTTP/2, in percent of the caller's timeout. Below that
/// at which a call is rejected there, since the estimate is made earlier and a rejection costs more.
const EARLY_PERCENT: u32 = 40;

/// Admission of the calls of one connection.
#[derive(Debug)]
pub(in crate::grpc) struct EarlyAdmission {
    control: Arc<AdmissionControl>,
    read_budget: ReadBudget,
    /// Calls that were left to HTTP/2 in the poll with the number `poll`, and are not counted as active yet.
    admitted: u32,
    poll: usize,
    /// Expected time to the response of the next call, less that of the admitted ones, since the latest read.
    expected: Option<Duration>,
    /// Whether a call of the latest read was refused.
    has_refused: bool,
}

impl EarlyAdmission {
    pub(in crate::grpc) const fn new(control: Arc<AdmissionControl>, read_budget: ReadBudget) -> Self {
        Self { control, read_budget, admitted: 0, poll: 0, expected: None, has_refused: false }
    }

    /// Begins a read.
    pub(in crate::grpc) fn begin_read(&mut self) {
        (self.expected, self.has_refused) = (None, false);
        let poll = self.read_budget.number();
        if self.poll != poll {
            (self.poll, self.admitted) = (poll, 0);
        }
    }

    /// Whether to refuse a call with a timeout, that was just read.
    pub(in crate::grpc) fn refuses(
        &mut self,
        timeout: Option<Duration>,
        now: impl FnOnce() -> Instant,
    ) -> bool {
        let Some(timeout) = timeout else { return false };
        let (control, read_budget) = (&self.control, &self.read_budget);
        let expected = *self.expected.get_or_insert_with(|| control.expected(read_budget, now()));
        let cost = Duration::from_nanos(control.call_cost.load(Ordering::Relaxed));
        let expected = cost * (self.admitted * QUEUES) + expected;
        let is_late = expected >= NEGLIGIBLE_DELAY && expected > percent_of(timeout, EARLY_PERCENT);
        if is_late && !self.has_refused {
            self.has_refused = true;
            control.warn(expected);
        }
        is_late
    }

    /// Counts a call that was left to HTTP/2.
    pub(in crate::grpc) const fn admitted(&mut self) {
        self.admitted += 1;
    }
}
