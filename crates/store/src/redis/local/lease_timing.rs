//! Times of leases, by algorithm and window.
//!
//! Longer ones save calls, above all for the many counters with a few hits per second. They cost exactness where tokens
//! of a worker are a larger part of what remains: in short windows; in buckets, which refill while tokens are held; and in
//! sliding windows, of which the total demand is underestimated and unused tokens weigh on the next window.

use std::time::Duration;

use tollgate_core::{SyncMode, algorithm::Policy};

/// Horizons within a fixed window. With this part, the last tenth of the window, in which `sync: auto` is strict, lasts
/// for twelve of the longest holds at the pace of the limit: tokens that were held before it are spent or refunded by its
/// end.
const HORIZONS_PER_WINDOW: u32 = 240;
const MIN_HORIZON: Duration = Duration::from_millis(100);
const MAX_HORIZON: Duration = Duration::from_secs(1);

/// Long horizons within a fixed window.
const LONG_HORIZONS_PER_WINDOW: u32 = 12;
const MAX_LONG_HORIZON: Duration = Duration::from_secs(5);

const BUCKET_HORIZON: Duration = Duration::from_millis(50);
const BUCKET_AVERAGING_TIME: Duration = Duration::from_millis(200);

/// Times of the leases of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseTiming {
    /// Time for which charges ahead should last.
    pub(super) horizon: Duration,
    /// Time for which they should last as far as they are a small part of the limit and of what remains: at least the
    /// horizon.
    pub(super) long_horizon: Duration,
    /// Longest time for which tokens are held.
    pub(super) max_hold: Duration,
    /// Time constant of the moving averages of demand. With twice the horizon, a single hit is a demand for half a token.
    pub(super) averaging_time: Duration,
}

impl LeaseTiming {
    /// Times for a counter with this policy. Those of `SyncMode::Strict`, which is never leased, have no effect.
    pub(super) fn of(policy: &Policy, sync: SyncMode) -> Self {
        let window = match policy {
            Policy::TokenBucket(_) => {
                let averaging_time = BUCKET_AVERAGING_TIME;
                return Self { averaging_time, ..Self::new(BUCKET_HORIZON, BUCKET_HORIZON) };
            }
            Policy::FixedWindow(policy) => policy.length(),
            _ => Duration::ZERO,
        };
        let part = |divisor, longest| window.checked_div(divisor).unwrap_or_default().min(longest);
        let horizon = part(HORIZONS_PER_WINDOW, MAX_HORIZON).max(MIN_HORIZON);
        let long_horizon = match sync {
            SyncMode::Leased => part(LONG_HORIZONS_PER_WINDOW, MAX_LONG_HORIZON).max(horizon),
            SyncMode::Strict | SyncMode::Auto => horizon,
        };
        Self::new(horizon, long_horizon)
    }

    const fn new(horizon: Duration, long_horizon: Duration) -> Self {
        let twice = long_horizon.saturating_mul(2);
        Self { horizon, long_horizon, max_hold: twice, averaging_time: twice }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{
        algorithm::{Algorithm, Parameters},
        quota::{Quota, Window},
    };

    use super::*;

    #[test]
    fn the_horizons_of_a_fixed_window_are_parts_of_it_within_bounds() {
        let times = |algorithm, seconds, sync| {
            let quota = Quota { limit: 1_000, window: Window::from_seconds(seconds).expect("in range") };
            let policy = Policy::new(algorithm, quota, &Parameters::default()).expect("valid");
            let timing = LeaseTiming::of(&policy, sync);
            assert_eq!(timing.max_hold, 2 * timing.long_horizon);
            assert!(u16::try_from(timing.max_hold.as_millis()).is_ok(), "for the script");
            [timing.horizon, timing.long_horizon, timing.averaging_time].map(|time| time.as_millis())
        };
        let fixed = |seconds, sync| times(Algorithm::FixedWindow, seconds, sync);
        assert_eq!(fixed(1, SyncMode::Leased), [100, 100, 200]);
        assert_eq!(fixed(6, SyncMode::Leased), [100, 500, 1_000]);
        assert_eq!(fixed(60, SyncMode::Leased), [250, 5_000, 10_000]);
        assert_eq!(fixed(86_400, SyncMode::Leased), [1_000, 5_000, 10_000]);
        assert_eq!(fixed(24, SyncMode::Auto), [100, 100, 200]);
        assert_eq!(fixed(60, SyncMode::Auto), [250, 250, 500]);
        assert_eq!(fixed(86_400, SyncMode::Auto), [1_000, 1_000, 2_000]);
        for sync in [SyncMode::Leased, SyncMode::Auto] {
            assert_eq!(times(Algorithm::SlidingWindow, 60, sync), [100, 100, 200]);
            assert_eq!(times(Algorithm::TokenBucket, 60, sync), [50, 50, 200]);
        }
    }
}
