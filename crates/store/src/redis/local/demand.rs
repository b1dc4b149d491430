//! Demand for a counter: of this worker, and of all workers.

#![allow(clippy::float_arithmetic)] // All of it estimates; none of it decides what passes.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{
    algorithm::{Policy, Verdict},
    clock::Timestamp,
};

/// Hits per second, as of a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    per_second: f64,
    at: Instant,
}

/// Hits per second charged to a window in Redis.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SharedRate {
    per_second: f64,
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
        let elapsed = now.saturating_duration_since(self.at);
        self.per_second * (-elapsed.as_secs_f64() / averaging_time.as_secs_f64()).exp()
    }

    /// Time since the last hits, or since the beginning.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }

    pub(super) fn add(&mut self, hits: u64, now: Instant, averaging_time: Duration) {
        // Sufficiently exact for any number of hits.
        self.per_second = self.at(now, averaging_time) + hits as f64 / averaging_time.as_secs_f64();
        self.at = now;
    }
}

impl SharedRate {
    /// Returns 0 until there are enough observations.
    pub(super) const fn per_second(&self) -> f64 {
        self.per_second
    }

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
