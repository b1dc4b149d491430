//! Times of leases, by algorithm and window.
//!
//! Longer ones save calls, above all for the many counters with a few hits per second. They cost exactness where tokens
//! of a worker are a larger part of what remains: in short windows; in buckets, which refill while tokens are held; and in
//! sliding windows, of which the total demand is underestimated and unused tokens weigh on the next window.

use std::time::Duration;

use tollgate_core::algorithm::Policy;

/// Horizon of a fixed window: a part of it, within bounds. With this part, the last tenth of the window, in which
/// `sync: auto` is strict, lasts for twelve of the longest holds at the pace of the limit: tokens that were held before it
/// are spent or refunded by its end.
const HORIZONS_PER_WINDOW: u32 = 240;
const MIN_HORIZON: Duration = Duration::from_millis(100);
const MAX_HORIZON: Duration = Duration::from_secs(1);

const BUCKET_HORIZON: Duration = Duration::from_millis(50);
const BUCKET_AVERAGING_TIME: Duration = Duration::from_millis(200);

/// Times of the leases of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseTiming {
    /// Time for which charges ahead should last.
    pub(super) horizon: Duration,
    /// Longest time for which tokens are held.
    pub(super) max_hold: Duration,
    /// Time constant of the moving averages of demand. With twice the horizon, a single hit is a demand for half a token.
    pub(super) averaging_time: Duration,
}

impl LeaseTiming {
    /// Times for a counter with this policy.
    pub(super) fn of(policy: &Policy) -> Self {
        if matches!(policy, Policy::TokenBucket(_)) {
            return Self::new(BUCKET_HORIZON, BUCKET_AVERAGING_TIME);
        }
        let part = match policy {
            Policy::FixedWindow(policy) => policy.length().checked_div(HORIZONS_PER_WINDOW),
            _ => None,
        };
        let horizon = part.unwrap_or_default().clamp(MIN_HORIZON, MAX_HORIZON);
        Self::new(horizon, horizon.saturating_mul(2))
    }

    const fn new(horizon: Duration, averaging_time: Duration) -> Self {
        Self { horizon, max_hold: horizon.saturating_mul(2), averaging_time }
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
    fn the_horizon_of_a_fixed_window_is_a_part_of_it_within_bounds() {
        let times = |algorithm, seconds| {
            let quota = Quota { limit: 1_000, window: Window::from_seconds(seconds).expect("in range") };
            let policy = Policy::new(algorithm, quota, &Parameters::default()).expect("valid");
            let timing = LeaseTiming::of(&policy);
            [timing.horizon, timing.max_hold, timing.averaging_time].map(|time| time.as_millis())
        };
        let fixed = |seconds| times(Algorithm::FixedWindow, seconds);
        assert_eq!(fixed(1), [100, 200, 200]);
        assert_eq!(fixed(24), [100, 200, 200]);
        assert_eq!(fixed(60), [250, 500, 500]);
        assert_eq!(fixed(240), [1_000, 2_000, 2_000]);
        assert_eq!(fixed(86_400), [1_000, 2_000, 2_000]);
        assert_eq!(times(Algorithm::SlidingWindow, 60), [100, 200, 200]);
        assert_eq!(times(Algorithm::TokenBucket, 60), [50, 100, 200]);
    }
}
