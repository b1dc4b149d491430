//! Demand for a counter, of this worker and of all workers, and the times of leases.
//!
//! Hot counters are those with many requests in a worker, which `sync: auto` leases. A filter of fixed size counts
//! the requests for all counters, some of them together. A counter that passes it gets an entry in the cache, in
//! which its requests are counted exactly. So a counter with few requests costs one count and no memory, and a wrong
//! guess of the filter costs an entry and changes no decision.
//!
//! Longer leases save calls, above all for the many counters with a few hits per second. They cost exactness where tokens
//! of a worker are a larger part of what remains: in short windows; in buckets, which refill while tokens are held; and in
//! sliding windows, of which the total demand is underestimated and unused tokens weigh on the next window.

#![allow(clippy::float_arithmetic)] // All of it estimates; none of it decides what passes.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::algorithm::{Policy, Verdict};
use tollgate_core::{SyncMode, clock::Timestamp};

use crate::after;

/// Requests within a second that make a counter hot, and those that keep it hot.
pub(super) const HOT_REQUESTS: u32 = 32;
const WARM_REQUESTS: u32 = 16;

/// Time since the last warm second after which a counter is cool.
pub(super) const COOLING_TIME: Duration = Duration::from_secs(5);

/// Length of the intervals in which requests are counted.
const INTERVAL: Duration = Duration::from_secs(1);

/// Number of counts in the filter: 64 KiB, for about 20,000 requests a second of cold counters.
const FILTER_SLOTS: usize = 16_384;

/// Binary logarithm of the milliseconds after which the counts of the filter are halved.
const HALF_LIFE_SHIFT: u32 = 8;

/// Count that passes the filter. At a constant rate the count varies between a quarter and a half of the requests in a
/// second, so every warm counter passes.
const CANDIDATE_COUNT: u16 = 4;

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

/// Hits per second, as of a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    per_second: f64,
    at: Instant,
}

/// Hits per second charged to a window in Redis.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SharedRate {
    /// 0 until there are enough observations.
    pub(super) per_second: f64,
    /// Time of the last observation, the end of the window, and its hits.
    seen: Option<(Timestamp, Timestamp, u64)>,
}

impl Rate {
    /// No demand yet.
    pub(super) const fn zero(now: Instant) -> Self {
        Self { per_second: 0.0, at: now }
    }

    /// The rate at a later time, without hits in between.
    pub(super) fn at(&self, now: Instant, averaging_time: Duration) -> f64 {
        let elapsed = now.duration_since(self.at);
        self.per_second * (-elapsed.as_secs_f64() / averaging_time.as_secs_f64()).exp()
    }

    /// Time since the last hits, or since the beginning.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.duration_since(self.at)
    }

    pub(super) fn add(&mut self, hits: u64, now: Instant, averaging_time: Duration) {
        // Sufficiently exact for any number of hits.
        self.per_second = self.at(now, averaging_time) + hits as f64 / averaging_time.as_secs_f64();
        self.at = now;
    }
}

impl SharedRate {
    /// Observes the hits of a window. Denied hits are not among them, so denials are ignored.
    pub(super) fn observe(
        &mut self,
        policy: &Policy,
        verdict: &Verdict,
        prefetched: u32,
        averaging_time: Duration,
    ) {
        let Some(end) = policy.prefetched_until(verdict.decided_at).filter(|_| verdict.admitted) else {
            return;
        };
        let (now, used) = (verdict.decided_at, verdict.used.saturating_add(u64::from(prefetched)));
        if let Some((at, known_end, before)) = self.seen
            && known_end == end
        {
            let elapsed = now.since(at).as_secs_f64();
            if elapsed > 0.0 {
                let sample = used.saturating_sub(before) as f64 / elapsed;
                let weight = 1.0 - (-elapsed / averaging_time.as_secs_f64()).exp();
                self.per_second += weight * (sample - self.per_second);
            }
        }
        self.seen = Some((now, end, used));
    }
}

/// Requests for one counter.
#[derive(Debug)]
pub(super) struct Heat {
    began: Instant,
    requests: u32,
    hot_until: Option<Instant>,
}

/// Counts of requests by the hash of their counter.
#[derive(Debug, Default)]
pub(super) struct HeatFilter {
    /// Allocated at the first request.
    slots: Option<Slots>,
}

#[derive(Debug)]
struct Slots {
    began: Instant,
    counts: Box<[Slot]>,
}

/// A count, as of a multiple of the half-life.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    at: u16,
    count: u16,
}

impl Heat {
    /// No requests yet.
    pub(super) const fn new(now: Instant) -> Self {
        Self { began: now, requests: 0, hot_until: None }
    }

    /// Counts a request.
    pub(super) fn record(&mut self, now: Instant) {
        if now.duration_since(self.began) >= INTERVAL {
            (self.began, self.requests) = (now, 0);
        }
        self.requests = self.requests.saturating_add(1);
        let is_kept_hot = self.requests >= WARM_REQUESTS && self.is_hot(now);
        if is_kept_hot || self.requests >= HOT_REQUESTS {
            self.hot_until = Some(after(now, COOLING_TIME));
        }
    }

    /// Whether the counter is hot.
    pub(super) fn is_hot(&self, now: Instant) -> bool {
        self.hot_until.is_some_and(|until| now < until)
    }
}

impl HeatFilter {
    /// Counts a request for the counter with this hash; returns whether the counter may be warm.
    pub(super) fn record(&mut self, hash: u64, now: Instant) -> bool {
        let Slots { began, counts } = self
            .slots
            .get_or_insert_with(|| Slots { began: now, counts: vec![Slot::default(); FILTER_SLOTS].into() });
        let elapsed = now.duration_since(*began).as_millis() >> HALF_LIFE_SHIFT;
        // Both casts keep the lower bits. A count that was not used for hours may seem new, and passes once too early.
        let (at, place) = (elapsed as u16, hash as usize & (FILTER_SLOTS - 1));
        let Some(slot) = counts.get_mut(place) else { return false };
        let half_lives = at.wrapping_sub(slot.at);
        let halved = slot.count.checked_shr(u32::from(half_lives)).unwrap_or_default();
        *slot = Slot { at, count: halved.saturating_add(1) };
        slot.count >= CANDIDATE_COUNT
    }
}

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
            Policy::FixedWindow(_) => policy.length(),
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
    use super::*;
    use crate::test_prelude::*;

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
