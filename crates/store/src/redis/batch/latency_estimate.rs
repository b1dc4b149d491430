//! Estimate of the time that a new request would take.
//!
//! A server executes all commands that it receives, even those whose callers no longer wait; beyond its capacity, it
//! soon does nothing else. So a request that would miss its deadline is not sent at all.

use std::time::Duration;

use tokio::time::Instant;

/// Requests ahead from which on the estimate applies: fewer take hardly any time.
const MIN_QUEUED_CALLS: usize = 512;

/// Smallest batch that is sampled. The time of a smaller one is mostly that of the network.
const MIN_SAMPLE_CALLS: usize = 256;

/// Divisor of the moving average: a sample has the weight 1/4.
const SMOOTHING_DIVISOR: u64 = 4;

/// Moving average of the time per request, and the number of requests in flight.
#[derive(Debug, Default)]
pub(super) struct LatencyEstimate {
    in_flight: usize,
    /// Moving average of the time per request.
    nanos_per_call: u64,
    completed_at: Option<Instant>,
}

impl LatencyEstimate {
    /// Records that `calls` requests were sent.
    pub(super) const fn sent(&mut self, calls: usize) {
        self.in_flight = self.in_flight.saturating_add(calls);
    }

    /// Number of requests sent and not yet answered.
    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Records that `calls` requests are no longer awaited.
    pub(super) const fn remove(&mut self, calls: usize) {
        self.in_flight = self.in_flight.saturating_sub(calls);
    }

    /// Records the response to `calls` requests that were sent together.
    pub(super) fn complete(&mut self, calls: usize, sent_at: Instant, now: Instant) {
        self.remove(calls);
        // Earlier batches are executed first.
        let started =
            self.completed_at.replace(now).map_or(sent_at, |completed_at| completed_at.max(sent_at));
        if calls < MIN_SAMPLE_CALLS {
            return;
        }
        let sample = now.saturating_duration_since(started).as_nanos().checked_div(calls as u128);
        let sample = sample.and_then(|sample| u64::try_from(sample).ok()).unwrap_or(u64::MAX);
        let part = |of: u64| of.checked_div(SMOOTHING_DIVISOR).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Estimate for a server that takes 4 µs for a request.
    fn latency(in_flight: usize) -> LatencyEstimate {
        let (mut latency, mut now) = (LatencyEstimate::default(), Instant::now());
        for _ in 0..10 {
            latency.sent(500);
            latency.complete(500, now, now + 2 * MS);
            now += 2 * MS;
        }
        latency.sent(in_flight);
        latency
    }

    #[test]
    fn a_request_is_accepted_while_those_ahead_leave_time() {
        assert!(latency(1_000).meets_deadline(1_400, 10 * MS));
        assert!(!latency(1_000).meets_deadline(1_600, 10 * MS));
        assert!(latency(1_000).meets_deadline(1_600, 20 * MS));
    }

    #[test]
    fn the_time_of_a_second_batch_counts_from_the_end_of_the_first() {
        let (mut latency, now) = (LatencyEstimate::default(), Instant::now());
        latency.sent(500);
        latency.sent(500);
        latency.complete(500, now, now + 2 * MS);
        latency.complete(500, now, now + 4 * MS);
        assert_eq!((latency.nanos_per_call, latency.in_flight), (4_000, 0));
    }

    #[test]
    fn small_batches_are_not_sampled_and_short_queues_always_accepted() {
        let (mut latency, now) = (LatencyEstimate::default(), Instant::now());
        latency.sent(1);
        latency.complete(1, now, now + MS);
        assert!(latency.meets_deadline(4_000, MS), "no sample yet");
        let mut slow = LatencyEstimate::default();
        slow.sent(300);
        slow.complete(300, now, now + 1_000 * MS);
        assert!(slow.meets_deadline(MIN_QUEUED_CALLS - 1, MS) && !slow.meets_deadline(MIN_QUEUED_CALLS, MS));
        // The estimate falls when the server is fast again.
        (0..20).for_each(|_| {
            slow.sent(300);
            slow.complete(300, now + 2_000 * MS, now + 2_000 * MS);
        });
        assert!(slow.meets_deadline(MIN_QUEUED_CALLS, 10 * MS), "{slow:?}");
    }
}
