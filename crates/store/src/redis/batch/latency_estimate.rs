//! How long a call that comes now would take.
//!
//! What a server is asked beyond what it can decide in time, it decides all the same, and later than anyone waits; soon
//! it does nothing else. So a call that would be answered too late is not sent in the first place.

use std::time::Duration;

use tokio::time::Instant;

/// Calls before it is asked how long they take: fewer are decided in no time.
const MANY: usize = 512;

/// Calls that travel together before their time says what one takes. Of fewer it is the way that takes the time.
const TELLING: usize = 256;

/// How much a flight counts, against those before it.
const WEIGHT: u64 = 4;

/// How fast a server decides, and how much it has to.
#[derive(Debug, Default)]
pub(super) struct LatencyEstimate {
    under_way: usize,
    /// What a call takes, in nanoseconds.
    each: u64,
    landed_at: Option<Instant>,
}

impl LatencyEstimate {
    /// Takes note that so many calls were sent.
    pub(super) const fn sent(&mut self, calls: usize) {
        self.under_way = self.under_way.saturating_add(calls);
    }

    /// Calls that were sent and not yet answered.
    pub(super) const fn under_way(&self) -> usize {
        self.under_way
    }

    /// Takes note that so many calls are no longer waited for.
    pub(super) const fn fail_batch(&mut self, calls: usize) {
        self.under_way = self.under_way.saturating_sub(calls);
    }

    /// Takes note that so many calls which were sent together were answered.
    pub(super) fn landed(&mut self, calls: usize, sent_at: Instant, now: Instant) {
        self.fail_batch(calls);
        // Those that were sent before had their turn first.
        let begun = self.landed_at.replace(now).map_or(sent_at, |landed_at| landed_at.max(sent_at));
        if calls < TELLING {
            return;
        }
        let took = now.saturating_duration_since(begun).as_nanos().checked_div(calls as u128);
        let took = took.and_then(|took| u64::try_from(took).ok()).unwrap_or(u64::MAX);
        let part = |of: u64| of.checked_div(WEIGHT).unwrap_or_default();
        self.each = match self.each {
            0 => took,
            each => each.saturating_sub(part(each)).saturating_add(part(took)),
        };
    }

    /// Whether a call behind so many that wait would be answered within so long.
    pub(super) fn is_in_time(&self, waiting: usize, within: Duration) -> bool {
        let before = self.under_way.saturating_add(waiting);
        let takes = self.each.saturating_mul(before as u64);
        before < MANY || Duration::from_nanos(takes) < within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// One of a server that takes 4 µs for a call, with so many under way.
    fn latency(under_way: usize) -> LatencyEstimate {
        let (mut latency, mut now) = (LatencyEstimate::default(), Instant::now());
        for _ in 0..10 {
            latency.sent(500);
            latency.landed(500, now, now + 2 * MS);
            now += 2 * MS;
        }
        latency.sent(under_way);
        latency
    }

    #[test]
    fn a_call_is_in_time_as_long_as_those_before_it_leave_time() {
        assert!(latency(1_000).is_in_time(1_400, 10 * MS));
        assert!(!latency(1_000).is_in_time(1_600, 10 * MS));
        assert!(latency(1_000).is_in_time(1_600, 20 * MS));
    }

    #[test]
    fn of_two_flights_under_way_the_second_takes_the_time_after_the_first() {
        let (mut latency, now) = (LatencyEstimate::default(), Instant::now());
        latency.sent(500);
        latency.sent(500);
        latency.landed(500, now, now + 2 * MS);
        latency.landed(500, now, now + 4 * MS);
        assert_eq!((latency.each, latency.under_way), (4_000, 0));
    }

    #[test]
    fn few_calls_say_nothing_and_are_always_in_time() {
        let (mut latency, now) = (LatencyEstimate::default(), Instant::now());
        latency.sent(1);
        latency.landed(1, now, now + MS);
        assert!(latency.is_in_time(4_000, MS), "nothing is known yet");
        let mut slow = LatencyEstimate::default();
        slow.sent(300);
        slow.landed(300, now, now + 1_000 * MS);
        assert!(slow.is_in_time(MANY - 1, MS) && !slow.is_in_time(MANY, MS));
        // So it is seen when the server is fast again.
        (0..20).for_each(|_| {
            slow.sent(300);
            slow.landed(300, now + 2_000 * MS, now + 2_000 * MS);
        });
        assert!(slow.is_in_time(MANY, 10 * MS), "{slow:?}");
    }
}
