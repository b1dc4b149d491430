//! Circuit breaker of the calls to the primary region.

use std::time::{Duration, Instant};

use tollgate_runtime::backoff::Backoff;

/// Messages in a row without a reply in time after which no more are sent for a while.
const MAX_FAILURES: u32 = 5;

/// First and maximum time without calls. At its end one message is sent.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Circuit breaker: after some messages in a row without a reply in time, one message at a time is sent.
#[derive(Debug)]
pub(super) struct Breaker {
    failures: u32,
    state: BreakerState,
    backoff: Backoff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BreakerState {
    Closed,
    /// No message is sent before this time.
    Open(Instant),
    /// The one message is on its way.
    Trying,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { failures: 0, state: BreakerState::Closed, backoff: Backoff::new(FIRST_PAUSE, MAX_PAUSE) }
    }
}

impl Breaker {
    /// Whether a message may be sent at `now`; its result has to be recorded.
    pub(super) fn admits(&mut self, now: Instant) -> bool {
        match self.state {
            BreakerState::Closed => true,
            BreakerState::Open(until) if now >= until => {
                self.state = BreakerState::Trying;
                true
            }
            BreakerState::Open(_) | BreakerState::Trying => false,
        }
    }

    /// Records a reply in time.
    pub(super) const fn succeeded(&mut self) {
        (self.failures, self.state) = (0, BreakerState::Closed);
        self.backoff.reset();
    }

    /// Records a message that had no reply in time.
    pub(super) fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        // Messages that were on their way before do not prolong the pause.
        let is_trying = self.state == BreakerState::Trying;
        if is_trying || (self.state == BreakerState::Closed && self.failures >= MAX_FAILURES) {
            let until = now.checked_add(self.backoff.pause()).unwrap_or(now);
            self.state = BreakerState::Open(until);
        }
    }

    /// Whether calls are refused.
    pub(super) fn is_open(&self) -> bool {
        self.state != BreakerState::Closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(breaker: &mut Breaker, times: u32, now: Instant) {
        (0..times).for_each(|_| breaker.failed(now));
    }

    #[test]
    fn calls_are_refused_after_failures_in_a_row_only() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        failed(&mut breaker, MAX_FAILURES - 1, now);
        breaker.succeeded();
        failed(&mut breaker, MAX_FAILURES - 1, now);
        assert!(breaker.admits(now) && !breaker.is_open());
        breaker.failed(now);
        assert!(!breaker.admits(now) && breaker.is_open());
    }

    #[test]
    fn one_call_at_a_time_is_tried_with_growing_pauses() {
        let (mut breaker, mut now) = (Breaker::default(), Instant::now());
        failed(&mut breaker, MAX_FAILURES, now);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let began = now;
            while !breaker.admits(now) {
                now += Duration::from_millis(10);
            }
            pauses.push(now - began);
            assert!(!breaker.admits(now), "a second message while the first is on its way");
            breaker.failed(now);
        }
        assert!(pauses.windows(2).take(3).all(|pair| pair[0] < pair[1]), "{pauses:?}");
        assert!(
            pauses.iter().all(|pause| *pause <= MAX_PAUSE * 5 / 4 + Duration::from_millis(10)),
            "{pauses:?}"
        );
        now += MAX_PAUSE * 2;
        assert!(breaker.admits(now));
        breaker.succeeded();
        assert!(breaker.admits(now) && breaker.admits(now), "a reply in time closes it");
    }

    #[test]
    fn late_failures_of_former_messages_do_not_prolong_a_pause() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        failed(&mut breaker, MAX_FAILURES, now);
        let after = now + FIRST_PAUSE * 5 / 4;
        failed(&mut breaker, 50, after);
        assert!(breaker.admits(after));
    }
}
