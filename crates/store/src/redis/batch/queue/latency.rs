//! Estimate of the time until a request that is sent now is answered.

use std::time::Duration;

use tokio::time::Instant;

/// Requests ahead from which on the estimate applies: fewer take hardly any time.
pub(super) const MIN_QUEUED_CALLS: usize = 512;

/// Smallest batch that is sampled. The time of a smaller one is mostly that of the network.
pub(super) const MIN_SAMPLE_CALLS: usize = 256;

/// Divisor of the moving average: a sample has the weight 1/4.
const SMOOTHING_DIVISOR: u64 = 4;

/// Moving average of the time per request, and the number of requests in flight.
#[derive(Debug, Default)]
pub(in crate::redis::batch) struct LatencyEstimate {
    pub(super) in_flight: usize,
    /// Moving average of the time per request.
    pub(super) nanos_per_call: u64,
    completed_at: Option<Instant>,
}

impl LatencyEstimate {
    /// Records that `calls` requests were sent.
    pub(in crate::redis::batch) const fn sent(&mut self, calls: usize) {
        self.in_flight = self.in_flight.saturating_add(calls);
    }

    /// Records that `calls` requests are no longer awaited.
    pub(in crate::redis::batch) const fn remove(&mut self, calls: usize) {
        self.in_flight = self.in_flight.saturating_sub(calls);
    }

    /// Records the response to `calls` requests that were sent together.
    pub(in crate::redis::batch) fn complete(&mut self, calls: usize, sent_at: Instant, now: Instant) {
        self.remove(calls);
        // Earlier batches are executed first.
        let started =
            self.completed_at.replace(now).map_or(sent_at, |completed_at| completed_at.max(sent_at));
        if calls < MIN_SAMPLE_CALLS {
            return;
        }
        let sample = now.duration_since(started).as_nanos().checked_div(calls as u128);
        let sample = sample.and_then(|sample| u64::try_from(sample).ok()).unwrap_or(u64::MAX);
        let part = |of: u64| of / SMOOTHING_DIVISOR;
        self.nanos_per_call = match self.nanos_per_call {
            0 => sample,
            nanos_per_call => {
                nanos_per_call.saturating_sub(part(nanos_per_call)).saturating_add(part(sample))
            }
        };
    }

    /// Whether a request behind `waiting` queued ones would be answered within `time_left`.
    pub(super) fn meets_deadline(&self, waiting: usize, time_left: Duration) -> bool {
        let ahead = self.in_flight.saturating_add(waiting);
        let nanos = self.nanos_per_call.saturating_mul(ahead as u64);
        ahead < MIN_QUEUED_CALLS || Duration::from_nanos(nanos) < time_left
    }
}
