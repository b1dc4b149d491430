//! A timer more precise than the runtime's, which has milliseconds.

use std::{
    io,
    time::{Duration, Instant},
};

#[cfg(target_os = "linux")]
pub(super) use self::linux::Timer;
#[cfg(not(target_os = "linux"))]
pub(super) use self::portable::Timer;

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::OwnedFd;

    use rustix::{
        io::read,
        time::{
            Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
            timerfd_settime,
        },
    };
    use tokio::io::unix::AsyncFd;

    use super::{Duration, Instant, io};

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

        /// Waits until `after` has passed since `start`.
        pub(in super::super) async fn sleep_until(&mut self, start: Instant, after: Duration) {
            let left = after.saturating_sub(start.elapsed());
            if !left.is_zero() && self.sleep(left).await.is_err() {
                tokio::time::sleep(left).await;
            }
        }

        async fn sleep(&mut self, left: Duration) -> io::Result<()> {
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
    use super::{Duration, Instant, io};

    /// The runtime's timer.
    #[derive(Debug)]
    pub(in super::super) struct Timer;

    impl Timer {
        /// A timer on the current runtime.
        pub(in super::super) fn new() -> io::Result<Self> {
            Ok(Self)
        }

        /// Waits until `after` has passed since `start`.
        pub(in super::super) async fn sleep_until(&mut self, start: Instant, after: Duration) {
            let left = after.saturating_sub(start.elapsed());
            if !left.is_zero() {
                tokio::time::sleep(left).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_timer_fires_on_time_and_not_before() {
        let mut timer = Timer::new().expect("a timer");
        let start = Instant::now();
        for micros in [0, 300, 900, 901, 5_000, 4_000] {
            let after = Duration::from_micros(micros);
            timer.sleep_until(start, after).await;
            assert!(start.elapsed() >= after, "{micros} µs");
        }
        assert!(start.elapsed() < Duration::from_secs(1));
    }
}
