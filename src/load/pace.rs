//! When requests are due.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use tokio::{select, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use super::{Span, timer::Timer};

/// The requests of one thread in an open loop: one every so often, the threads taking turns.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    /// Nanoseconds from one request to the next.
    interval: f64,
    /// Nanoseconds from the start to the first one.
    first: f64,
}

#[allow(clippy::float_arithmetic)] // A rate is a fraction.
impl Schedule {
    /// The part of thread number `thread` of `threads`, which make `rate` requests per second together.
    fn new(rate: f64, thread: usize, threads: usize) -> Self {
        let each = 1e9 / rate;
        Self { interval: each * threads as f64, first: each * thread as f64 }
    }

    /// When the request number `number` is due, after the start.
    fn due(&self, number: u64) -> Duration {
        Duration::from_nanos((self.first + self.interval * number as f64).round() as u64)
    }

    /// How many requests are due so long after the start.
    fn count_due(&self, elapsed: Duration) -> u64 {
        let elapsed = elapsed.as_nanos() as f64 - self.first.floor();
        match elapsed < 0.0 {
            true => 0,
            false => ((elapsed / self.interval).floor() as u64).saturating_add(1),
        }
    }
}

/// Lets the streams of a thread send a request whenever one is due, in an open loop. One that is late, because all
/// streams are busy, keeps the time at which it was due.
#[derive(Debug)]
pub(super) struct OpenLoop {
    schedule: Schedule,
    span: Span,
    /// Requests that are due and not taken.
    waiting: Semaphore,
    taken: AtomicU64,
}

impl OpenLoop {
    pub(super) fn new(rate: f64, thread: usize, threads: usize, span: Span) -> Self {
        let schedule = Schedule::new(rate, thread, threads);
        Self { schedule, span, waiting: Semaphore::new(0), taken: AtomicU64::new(0) }
    }

    /// Waits for a request to be due and tells since when it is; `None` once it is over.
    pub(super) async fn next(&self) -> Option<Instant> {
        self.waiting.acquire().await.ok()?.forget();
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        self.span.start.checked_add(self.schedule.due(number))
    }

    /// Announces the requests when they are due, until the end or until it is stopped. Answers how many were due and
    /// nobody had a stream to send them.
    pub(super) async fn announce(&self, timer: &mut Timer, stop: &CancellationToken) -> u64 {
        let announced = AtomicU64::new(0);
        select! {
            () = self.announce_until_end(timer, &announced) => {}
            () = stop.cancelled() => {}
        }
        // Whoever waits is told that it is over, and what is still due stays undone.
        self.waiting.close();
        announced.into_inner().saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    async fn announce_until_end(&self, timer: &mut Timer, so_far: &AtomicU64) {
        let length = self.span.end.saturating_duration_since(self.span.start);
        // One that is due right at the end is not sent.
        let all = self.schedule.count_due(length.saturating_sub(Duration::from_nanos(1)));
        let mut announced = 0_u64;
        while announced < all {
            let count = self.schedule.count_due(self.span.start.elapsed()).min(all);
            let more = usize::try_from(count.saturating_sub(announced)).unwrap_or(usize::MAX);
            self.waiting.add_permits(more.min(Semaphore::MAX_PERMITS));
            announced = count;
            so_far.store(announced, Ordering::Relaxed);
            timer.sleep_until(self.span.start, self.schedule.due(announced)).await;
        }
        timer.sleep_until(self.span.start, length).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_at_equal_distances_whatever_time_it_is() {
        let schedule = Schedule::new(1000.0, 0, 1);
        let due: Vec<_> = (0..4).map(|number| schedule.due(number)).collect();
        assert_eq!(due, [0, 1, 2, 3].map(Duration::from_millis));
        for (micros, count) in [(0, 1), (999, 1), (1000, 2), (1999, 2), (1_000_000, 1001)] {
            assert_eq!(schedule.count_due(Duration::from_micros(micros)), count, "{micros} µs");
        }
    }

    #[test]
    fn threads_take_turns() {
        let threads = [0, 1, 2].map(|thread| Schedule::new(3000.0, thread, 3));
        let mut due: Vec<_> =
            threads.iter().flat_map(|schedule| (0..100).map(|number| schedule.due(number))).collect();
        due.sort_unstable();
        for (at, pair) in due.windows(2).enumerate() {
            let distance = (pair[1] - pair[0]).as_nanos();
            assert!((333_332..=333_335).contains(&distance), "{distance} ns after {at}");
        }
        let count: u64 = threads.iter().map(|schedule| schedule.count_due(Duration::from_millis(999))).sum();
        assert_eq!(count, 2998);
    }

    #[test]
    fn a_request_that_is_due_is_counted_as_due() {
        for rate in [0.3, 7.0, 999.0, 33_333.0, 1e6] {
            let schedule = Schedule::new(rate, 1, 3);
            for number in [0, 1, 2, 10, 12_345, 1_000_000] {
                let counted = schedule.count_due(schedule.due(number) + Duration::from_nanos(1));
                assert_eq!(counted, number + 1, "{rate}");
            }
        }
    }

    #[tokio::test]
    async fn a_request_that_is_taken_late_keeps_its_time() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let span = Span { start, measure: start, end: after(40) };
        let open = OpenLoop::new(1000.0, 0, 1, span);
        let mut timer = Timer::new().expect("a timer");
        let streams = async {
            let first = open.next().await;
            // All streams are busy for 20 ms.
            tokio::time::sleep(Duration::from_millis(20)).await;
            (first, open.next().await, open.next().await)
        };
        let stop = CancellationToken::new();
        let (unsent, taken) = tokio::join!(open.announce(&mut timer, &stop), streams);
        assert_eq!(taken, (Some(start), Some(after(1)), Some(after(2))));
        assert_eq!(unsent, 37);
        assert_eq!(open.next().await, None);
    }

    #[tokio::test]
    async fn a_stop_ends_it_before_its_time() {
        let start = Instant::now();
        let end = start + Duration::from_secs(3600);
        let open = OpenLoop::new(1e-3, 0, 1, Span { start, measure: start, end });
        let (mut timer, stop) = (Timer::new().expect("a timer"), CancellationToken::new());
        let streams = async {
            assert_eq!(open.next().await, Some(start));
            stop.cancel();
            open.next().await
        };
        assert_eq!(tokio::join!(open.announce(&mut timer, &stop), streams), (0, None));
    }
}
