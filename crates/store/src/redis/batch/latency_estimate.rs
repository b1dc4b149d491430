//! How long a call that comes now would take.
//!
//! What a server is asked beyond what it can decide in time, it decides all the same, and later than anyone waits; soon
//! it does nothing else. So a call that would be answered too late is not sent in the first place.

use std::time::Duration;

use tokio::time::Instant;

/// Calls before it is asked how long they take: fewer are decided in no time.
const MIN_QUEUED_CALLS: usize = 512;

/// Calls that travel together before their time says what one takes. Of fewer it is the way that takes the time.
const MIN_SAMPLE_CALLS: usize = 256;

/// How much a flight counts, against those before it.
const SMOOTHING_DIVISOR: u64 = 4;

/// How fast a server decides, and how much it has to.
#[derive(Debug, Default)]
pub(super) struct LatencyEstimate {
    in_flight: usize,
    /// What a call takes, in nanoseconds.
    nanos_per_call: u64,
    completed_at: Option<Instant>,
}

impl LatencyEstimate {
    /// Takes note that so many calls were sent.
    pub(super) const fn sent(&mut self, calls: usize) {
        self.in_flight = self.in_flight.saturating_add(calls);
    }

    /// Calls that were sent and not yet answered.
    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes note that so many calls are no longer waited for.
    pub(super) const fn remove(&mut self, calls: usize) {
        self.in_flight = self.in_flight.saturating_sub(calls);
    }

    /// Takes note that so many calls which were sent together were answered.
    pub(super) fn complete(&mut self, calls: usize, sent_at: Instant, now: Instant) {
        self.remove(calls);
        // Those that were sent before had their turn first.
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

    /// Whether a call behind so many that wait would be answered within so long.
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

    /// One of a server that takes 4 µs for a call, with so many under way.
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
    fn a_call_is_in_time_as_long_as_those_before_it_leave_time() {
        assert!(latency(1_000).meets_deadline(1_400, 10 * MS));
        assert!(!latency(1_000).meets_deadline(1_600, 10 * MS));
        assert!(latency(1_000).meets_deadline(1_600, 20 * MS));
    }

    #[test]
    fn of_two_flights_under_way_the_second_takes_the_time_after_the_first() {
        let (mut latency, now) = (LatencyEstimate::default(), Instant::now());
        latency.sent(500);
        latency.sent(500);
        latency.complete(500, now, now + 2 * MS);
        latency.complete(500, now, now + 4 * MS);
        assert_eq!((latency.nanos_per_call, latency.in_flight), (4_000, 0));
    }

    #[test]
    fn few_calls_say_nothing_and_are_always_in_time() {
        let (mut latency, now) = (LatencyEstimate::default(), Instant::now());
        latency.sent(1);
        latency.complete(1, now, now + MS);
        assert!(latency.meets_deadline(4_000, MS), "nothing is known yet");
        let mut slow = LatencyEstimate::default();
        slow.sent(300);
        slow.complete(300, now, now + 1_000 * MS);
        assert!(slow.meets_deadline(MIN_QUEUED_CALLS - 1, MS) && !slow.meets_deadline(MIN_QUEUED_CALLS, MS));
        // So it is seen when the server is fast again.
        (0..20).for_each(|_| {
            slow.sent(300);
            slow.complete(300, now + 2_000 * MS, now + 2_000 * MS);
        });
        assert!(slow.meets_deadline(MIN_QUEUED_CALLS, 10 * MS), "{slow:?}");
    }
}
