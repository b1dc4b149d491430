//! Circuit breaker of the calls to the primary region.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_runtime::backoff::Backoff;

/// Messages in a row without a reply in time after which no more are sent for a while.
const MAX_FAILURES: u32 = 5;

/// First and maximum time without calls. At its end one message is sent, the probe.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Time after which another probe is sent in place of one whose outcome was not recorded.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Circuit breaker: after some messages in a row without a reply in time, one message at a time is sent.
#[derive(Debug)]
pub(super) struct Breaker {
    /// Number of the regions that were called before.
    region: u64,
    failures: u32,
    state: BreakerState,
    backoff: Backoff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BreakerState {
    Closed,
    /// No message is sent before this time.
    Open(Instant),
    /// The probe is in flight since this time.
    HalfOpen(Instant),
}

/// A message that was admitted, whose outcome is to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    /// Number of the region, so that a former one's messages do not count.
    region: u64,
    /// When it was sent, if it is a probe.
    probe: Option<Instant>,
}

impl Default for Breaker {
    fn default() -> Self {
        let backoff = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
        Self { region: 0, failures: 0, state: BreakerState::Closed, backoff }
    }
}

impl Breaker {
    /// Begins anew for another region.
    pub(super) fn change_region(&mut self) {
        *self = Self { region: self.region.wrapping_add(1), ..Self::default() };
    }

    /// Admits a message at `now`, or none.
    pub(super) fn admit(&mut self, now: Instant) -> Option<Attempt> {
        if self.refuses(now) {
            return None;
        }
        let probe = (self.state != BreakerState::Closed).then_some(now);
        if let Some(since) = probe {
            self.state = BreakerState::HalfOpen(since);
        }
        Some(Attempt { region: self.region, probe })
    }

    /// Whether no message is admitted at `now`.
    pub(super) fn refuses(&self, now: Instant) -> bool {
        match self.state {
            BreakerState::Closed => false,
            BreakerState::Open(until) => now < until,
            BreakerState::HalfOpen(since) => now.duration_since(since) < PROBE_TIMEOUT,
        }
    }

    /// Records a reply in time.
    pub(super) fn succeeded(&mut self, attempt: Attempt) {
        if self.counts(attempt) {
            (self.failures, self.state) = (0, BreakerState::Closed);
            self.backoff.reset();
        }
    }

    /// Records a message that had no reply in time. Whether the region is still called.
    pub(super) fn failed(&mut self, attempt: Attempt, now: Instant) -> bool {
        if self.counts(attempt) {
            self.failures += 1;
            if attempt.probe.is_some() || self.failures >= MAX_FAILURES {
                self.state = BreakerState::Open(now + self.backoff.pause());
            }
        }
        attempt.region == self.region
    }

    /// Whether the outcome of a message counts: while the breaker is closed that of each, then that of the probe
    /// alone. Messages that were in flight before neither prolong a pause nor end it.
    fn counts(&self, attempt: Attempt) -> bool {
        let counts = match self.state {
            BreakerState::Closed => attempt.probe.is_none(),
            BreakerState::Open(_) => false,
            BreakerState::HalfOpen(since) => attempt.probe == Some(since),
        };
        counts && attempt.region == self.region
    }

    /// Whether calls are refused, or were until the probe in flight.
    pub(super) fn is_open(&self) -> bool {
        self.state != BreakerState::Closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message that is sent now.
    fn sent(breaker: &mut Breaker, now: Instant) -> Attempt {
        breaker.admit(now).expect("admitted")
    }

    /// Messages that are sent together and fail.
    fn failed(breaker: &mut Breaker, times: u32, now: Instant) {
        let attempts: Vec<_> = (0..times).map(|_| sent(breaker, now)).collect();
        attempts.into_iter().for_each(|attempt| _ = breaker.failed(attempt, now));
    }

    /// The probe of an open breaker, and when it is admitted.
    fn probe(breaker: &mut Breaker, mut now: Instant) -> (Attempt, Instant) {
        loop {
            match breaker.admit(now) {
                Some(attempt) => return (attempt, now),
                None => now += Duration::from_millis(10),
            }
        }
    }

    #[test]
    fn calls_are_refused_after_failures_in_a_row_only() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        failed(&mut breaker, MAX_FAILURES - 1, now);
        let attempt = sent(&mut breaker, now);
        breaker.succeeded(attempt);
        failed(&mut breaker, MAX_FAILURES - 1, now);
        assert!(!breaker.refuses(now) && !breaker.is_open());
        failed(&mut breaker, 1, now);
        assert!(breaker.refuses(now) && breaker.is_open());
    }

    #[test]
    fn one_probe_at_a_time_is_sent_with_growing_pauses() {
        let (mut breaker, mut now) = (Breaker::default(), Instant::now());
        failed(&mut breaker, MAX_FAILURES, now);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let (attempt, then) = probe(&mut breaker, now);
            pauses.push(then - now);
            assert_eq!(breaker.admit(then), None, "a second probe while the first is in flight");
            breaker.failed(attempt, then);
            now = then;
        }
        assert!(pauses.windows(2).take(3).all(|pair| pair[0] < pair[1]), "{pauses:?}");
        assert!(
            pauses.iter().all(|pause| *pause <= MAX_PAUSE * 5 / 4 + Duration::from_millis(10)),
            "{pauses:?}"
        );
        let (attempt, now) = probe(&mut breaker, now);
        breaker.succeeded(attempt);
        assert!(breaker.admit(now).is_some() && breaker.admit(now).is_some(), "a reply in time closes it");
    }

    #[test]
    fn former_messages_neither_prolong_a_pause_nor_end_it() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        let former: Vec<_> = (0..50).map(|_| sent(&mut breaker, now)).collect();
        failed(&mut breaker, MAX_FAILURES, now);
        let after = now + FIRST_PAUSE * 5 / 4;
        former[..25].iter().for_each(|attempt| _ = breaker.failed(*attempt, after));
        former[25..30].iter().for_each(|attempt| breaker.succeeded(*attempt));
        assert!(breaker.refuses(now), "it is open");
        let attempt = sent(&mut breaker, after);
        former[30..40].iter().for_each(|attempt| _ = breaker.failed(*attempt, after));
        former[40..].iter().for_each(|attempt| breaker.succeeded(*attempt));
        assert!(breaker.refuses(after), "the probe is in flight");
        breaker.succeeded(attempt);
        assert!(!breaker.is_open());
    }

    #[test]
    fn a_message_whose_outcome_is_lost_is_followed_by_another_one() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        failed(&mut breaker, MAX_FAILURES, now);
        let (lost, now) = probe(&mut breaker, now);
        assert!(breaker.refuses(now + PROBE_TIMEOUT - Duration::from_millis(1)));
        let now = now + PROBE_TIMEOUT;
        let next = sent(&mut breaker, now);
        assert!(breaker.refuses(now), "one at a time");
        breaker.failed(lost, now);
        assert!(matches!(breaker.state, BreakerState::HalfOpen(_)), "the outcome of the next one decides");
        breaker.succeeded(next);
        assert!(!breaker.is_open());
    }

    #[test]
    fn messages_to_a_former_region_do_not_count_for_the_next_one() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        let former: Vec<_> = (0..20).map(|_| sent(&mut breaker, now)).collect();
        breaker.change_region();
        for attempt in &former[..10] {
            assert!(!breaker.failed(*attempt, now), "the region is not called any more");
        }
        assert!(!breaker.is_open());
        failed(&mut breaker, MAX_FAILURES, now);
        probe(&mut breaker, now);
        former[10..].iter().for_each(|attempt| breaker.succeeded(*attempt));
        assert!(breaker.is_open());
    }
}
