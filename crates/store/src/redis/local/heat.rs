//! Hot counters: those with many requests in a worker, which `sync: auto` leases.
//!
//! A filter of fixed size counts the requests for all counters, some of them together. A counter that passes it gets an
//! entry in the cache, in which its requests are counted exactly. So a counter with few requests costs one count
//! and no memory, and a wrong guess of the filter costs an entry and changes no decision.

use std::time::Duration;

use tokio::time::Instant;

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
        if now.saturating_duration_since(self.began) >= INTERVAL {
            (self.began, self.requests) = (now, 0);
        }
        self.requests = self.requests.saturating_add(1);
        let is_kept_hot = self.requests >= WARM_REQUESTS && self.is_hot(now);
        if is_kept_hot || self.requests >= HOT_REQUESTS {
            self.hot_until = now.checked_add(COOLING_TIME);
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
        let elapsed = now.saturating_duration_since(*began).as_millis() >> HALF_LIFE_SHIFT;
        // Both casts keep the lower bits. A count that was not used for hours may seem new, and passes once too early.
        let (at, place) = (elapsed as u16, hash as usize & (FILTER_SLOTS - 1));
        let Some(slot) = counts.get_mut(place) else { return false };
        let half_lives = at.wrapping_sub(slot.at);
        let halved = slot.count.checked_shr(u32::from(half_lives)).unwrap_or_default();
        *slot = Slot { at, count: halved.saturating_add(1) };
        slot.count >= CANDIDATE_COUNT
    }
}
