//! Timestamps, and the only access to the wall clock.
//!
//! Functions that decide take the time as an argument, so that tests can pass one.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::saturating::Seconds;

/// A point in time: whole microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Maximum of a stored state: early in the year 2106, when seconds since the epoch exceed 32 bits.
    pub const MAX: Self = Self(u32::MAX as u64 * 1_000_000);

    /// Returns the time `micros` microseconds after the epoch, at most [`Timestamp::MAX`].
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 { Self::MAX } else { Self(micros) }
    }

    /// Returns the time `seconds` seconds after the epoch.
    pub const fn from_seconds(seconds: u32) -> Self {
        Self((seconds as u64).saturating_mul(1_000_000))
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the epoch, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn seconds(self) -> u32 {
        // Bounded by `MAX`, so the value fits.
        (self.0 / 1_000_000) as u32
    }

    /// Microseconds past the whole second, below 1,000,000.
    pub const fn subsec_micros(self) -> u32 {
        (self.0 % 1_000_000) as u32
    }

    /// End of the window of `length` seconds, aligned to the epoch, that contains this time, in seconds since the epoch.
    pub(crate) fn window_end(self, length: NonZeroU32) -> Seconds {
        let second = self.seconds();
        Seconds(second) - second % length + length.get()
    }

    /// Returns this time plus `duration`, at most [`Timestamp::MAX`].
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self::from_micros(self.0.saturating_add(micros(duration)))
    }

    /// Returns the time since `earlier`; zero if `earlier` is later than this.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        // `MAX` is far below the maximum of `SystemTime`.
        UNIX_EPOCH.checked_add(Duration::from_micros(time.0)).unwrap_or(UNIX_EPOCH)
    }
}

/// Whole microseconds of a time, rounded down.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The time by the system's clock, in milliseconds since the epoch.
pub fn now_ms() -> u64 {
    Clock::System.now().as_millis()
}

/// Source of the current time.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The system's clock.
    System,
    /// The system's clock, plus a number of microseconds.
    Shifted(Arc<AtomicI64>),
    /// A clock that a test sets, in microseconds since the epoch.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// Returns a clock that stays at `start` until [`Clock::set`] moves it.
    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(Arc::new(AtomicU64::new(start.as_micros())))
    }

    /// The current time.
    #[allow(clippy::disallowed_methods)] // The only call in the program.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
                Timestamp::from_micros(micros(since))
            }
            Self::Shifted(shift) => {
                let micros = Self::System.now().as_micros();
                Timestamp::from_micros(micros.saturating_add_signed(shift.load(Ordering::Relaxed)))
            }
            Self::Manual(micros) => Timestamp::from_micros(micros.load(Ordering::Relaxed)),
        }
    }

    /// Moves a manual clock to `time`; has no effect on the system's clock.
    pub fn set(&self, time: Timestamp) {
        if let Self::Manual(micros) = self {
            micros.store(time.as_micros(), Ordering::Relaxed);
        }
    }
}
