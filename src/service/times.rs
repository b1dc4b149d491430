//! Times in responses: until a client may retry, and of resets.

use std::time::Duration;

use tollgate_core::{
    clock::{Clock, Timestamp},
    descriptor::Descriptor,
};
use tollgate_limiter::{Spread, decision::Decision};

/// Time by which a point in time may be rounded down to a whole second. It covers the time from the store's decision to the
/// response, and the difference of the clocks, so that all responses in a window report the same Unix time.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(50);

/// Times of one response.
#[derive(Debug)]
pub(super) struct ResponseTimes<'a> {
    clock: &'a Clock,
    retry_after: Option<u64>,
}

impl<'a> ResponseTimes<'a> {
    /// Times of a response to a request with these descriptors. Limits that state no spread have `default_spread`.
    pub(super) fn of(
        clock: &'a Clock,
        decision: &Decision<'_>,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        default_spread: Duration,
    ) -> Self {
        let spread = Spread { domain, descriptors, default: default_spread };
        let retry_after = decision.spread_retry_after(&spread);
        Self { clock, retry_after: retry_after.map(|wait| whole_seconds(wait).max(1)) }
    }

    /// `Retry-After` of a denial in seconds: until the limits admit the request, and the delay of its key.
    pub(super) const fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// Unix time in seconds after `wait`, rounded up.
    pub(super) fn unix_seconds(&self, wait: Duration) -> u64 {
        unix_seconds(self.clock.now(), wait)
    }
}

fn unix_seconds(now: Timestamp, wait: Duration) -> u64 {
    let then = Duration::from_micros(now.as_micros()).saturating_add(wait);
    whole_seconds(then.saturating_sub(CLOCK_TOLERANCE))
}

/// Returns `duration` in seconds, rounded up.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unix_time_is_rounded_up_but_for_the_tolerance_of_the_clocks() {
        let of = |now, micros| unix_seconds(Timestamp::from_micros(now), Duration::from_micros(micros));
        assert_eq!(of(1_700_000_000_250_000, 9_750_000), 1_700_000_010);
        // Times of one window's end, seen up to 50 ms after the decision.
        assert_eq!(of(1_700_000_000_300_000, 9_750_000), 1_700_000_010);
        assert_eq!(of(1_700_000_000_250_000, 9_749_000), 1_700_000_010);
        assert_eq!(of(1_700_000_000_300_001, 9_750_000), 1_700_000_011);
        assert_eq!(of(1_700_000_000_250_000, 10_450_000), 1_700_000_011);
        assert_eq!(of(0, 0), 0);
    }
}
