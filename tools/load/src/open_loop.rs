//! An open loop: releases requests at a fixed rate, whether or not earlier ones are answered, by a timer more precise than the
//! runtime's, which has milliseconds.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::{select, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use crate::Phases;

/// Due times of one thread's requests, interleaved with those of the other threads.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    /// Nanoseconds between two requests.
    interval: f64,
    /// Nanoseconds from the start to the first request.
    first: f64,
}

#[allow(clippy::float_arithmetic)] // A rate is a fraction.
impl Schedule {
    /// The share of thread number `thread` of `threads`, which together send `rate` requests per second.
    fn new(rate: f64, thread: usize, threads: usize) -> Self {
        let each = 1e9 / rate;
        Self { interval: each * threads as f64, first: each * thread as f64 }
    }

    /// Due time of request number `number`, from the start.
    fn due(&self, number: u64) -> Duration {
        Duration::from_nanos((self.first + self.interval * number as f64).round() as u64)
    }

    /// Number of requests due within `elapsed` of the start.
    fn count_due(&self, elapsed: Duration) -> u64 {
        let elapsed = elapsed.as_nanos() as f64 - self.first.floor();
        if elapsed < 0.0 {
            return 0;
        }
        (elapsed / self.interval).floor() as u64 + 1
    }
}

/// Releases requests to the streams of a thread when they are due. A request that is sent late, because all streams are
/// busy, keeps its due time.
#[derive(Debug)]
pub(super) struct OpenLoop {
    schedule: Schedule,
    phases: Phases,
    /// Requests that are due and not taken.
    due: Semaphore,
    taken: AtomicU64,
}

impl OpenLoop {
    pub(super) fn new(rate: f64, thread: usize, threads: usize, phases: Phases) -> Self {
        let schedule = Schedule::new(rate, thread, threads);
        Self { schedule, phases, due: Semaphore::new(0), taken: AtomicU64::new(0) }
    }

    /// Waits for a due request and returns its due time; `None` after the end.
    pub(super) async fn next(&self) -> Option<Instant> {
        self.due.acquire().await.ok()?.forget();
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        self.phases.start.checked_add(self.schedule.due(number))
    }

    /// Releases requests when they are due, until the end or `stop`. Returns how many were due and never sent, because no
    /// stream was free.
    pub(super) async fn announce(&self, timer: &mut Timer, stop: &CancellationToken) -> u64 {
        let announced = AtomicU64::new(0);
        select! {
            () = self.announce_until_end(timer, &announced) => {}
            () = stop.cancelled() => {}
        }
        // Ends the streams that wait; requests still due stay unsent.
        self.due.close();
        announced.into_inner() - self.taken.load(Ordering::Relaxed)
    }

    async fn announce_until_end(&self, timer: &mut Timer, so_far: &AtomicU64) {
        let length = self.phases.end.saturating_duration_since(self.phases.start);
        // A request due exactly at the end is not sent.
        let all = self.schedule.count_due(length.saturating_sub(Duration::from_nanos(1)));
        let mut announced = 0_u64;
        while announced < all {
            let count = self.schedule.count_due(self.phases.start.elapsed()).min(all);
            let more = usize::try_from(count - announced).unwrap_or(usize::MAX);
            self.due.add_permits(more.min(Semaphore::MAX_PERMITS));
            announced = count;
            so_far.store(announced, Ordering::Relaxed);
            self.sleep_until(timer, self.schedule.due(announced)).await;
        }
        self.sleep_until(timer, length).await;
    }

    /// Waits until `after` has passed since the start.
    async fn sleep_until(&self, timer: &mut Timer, after: Duration) {
        let left = after.saturating_sub(self.phases.start.elapsed());
        if !left.is_zero() && timer.sleep(left).await.is_err() {
            tokio::time::sleep(left).await;
        }
    }
}

#[cfg(target_os = "linux")]
pub(super) use self::linux::Timer;
#[cfg(not(target_os = "linux"))]
pub(super) use self::portable::Timer;

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::OwnedFd;

    use rustix::io::read;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;

    use super::{Duration, io};

    /// A kernel timer (`timerfd`).
    #[derive(Debug)]
    pub(in super::super) struct Timer(AsyncFd<OwnedFd>);

    impl Timer {
        /// A timer on the current runtime.
        // Its replacement is unsafe, because a type may return a descriptor that it does not own. This one owns it.
        #[allow(deprecated)]
        pub(in super::super) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?).map(Self)
        }

        pub(super) async fn sleep(&mut self, left: Duration) -> io::Result<()> {
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let value = Timespec::try_from(left).map_err(io::Error::other)?;
            let once = Itimerspec { it_interval: zero, it_value: value };
            timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
            loop {
                let mut ready = self.0.readable().await?;
                let expired = ready.try_io(|timer| Ok(read(timer.get_ref(), &mut [0_u8; 8])?));
                if let Ok(expired) = expired {
                    return expired.map(drop);
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use super::{Duration, io};

    /// The runtime's timer.
    #[derive(Debug)]
    pub(in super::super) struct Timer;

    impl Timer {
        /// A timer on the current runtime.
        pub(in super::super) fn new() -> io::Result<Self> {
            Ok(Self)
        }

        pub(super) async fn sleep(&mut self, left: Duration) -> io::Result<()> {
            tokio::time::sleep(left).await;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_at_equal_intervals() {
        let schedule = Schedule::new(1000.0, 0, 1);
        let due: Vec<_> = (0..4).map(|number| schedule.due(number)).collect();
        assert_eq!(due, [0, 1, 2, 3].map(Duration::from_millis));
        for (micros, count) in [(0, 1), (999, 1), (1000, 2), (1999, 2), (1_000_000, 1001)] {
            assert_eq!(schedule.count_due(Duration::from_micros(micros)), count, "{micros} µs");
        }
    }

    #[test]
    fn requests_of_threads_are_interleaved() {
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
    async fn a_request_that_is_sent_late_keeps_its_due_time() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let phases = Phases { start, measure: start, end: after(40) };
        let open = OpenLoop::new(1000.0, 0, 1, phases);
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
    async fn a_stop_ends_the_loop_early() {
        let start = Instant::now();
        let end = start + Duration::from_secs(3600);
        let open = OpenLoop::new(1e-3, 0, 1, Phases { start, measure: start, end });
        let (mut timer, stop) = (Timer::new().expect("a timer"), CancellationToken::new());
        let streams = async {
            assert_eq!(open.next().await, Some(start));
            stop.cancel();
            open.next().await
        };
        assert_eq!(tokio::join!(open.announce(&mut timer, &stop), streams), (0, None));
    }

    #[tokio::test]
    async fn a_timer_fires_on_time_and_not_before() {
        let mut timer = Timer::new().expect("a timer");
        let start = Instant::now();
        let open = OpenLoop::new(1.0, 0, 1, Phases { start, measure: start, end: start });
        for micros in [0, 300, 900, 901, 5_000, 4_000] {
            let after = Duration::from_micros(micros);
            open.sleep_until(&mut timer, after).await;
            assert!(start.elapsed() >= after, "{micros} µs");
        }
        assert!(start.elapsed() < Duration::from_secs(1));
    }
}
