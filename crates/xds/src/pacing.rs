//! Bounds how often responses are processed. A control plane that pushes without end costs little then, and its last
//! response is still the one that is active in the end.

use std::{future::pending, time::Duration};

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

/// Responses that are processed at once, after a quiet time.
const MAX_BURST: u32 = 20;
/// Time after which another one is.
const PROCESS_INTERVAL: Duration = Duration::from_millis(500);
/// Number of superseded responses that are read between two pauses. What was sent before the flood ended has to be read
/// soon, and reading takes CPU time from others.
const SUPERSEDED_AT_ONCE: u32 = 32;
/// Duration of such a pause.
const SUPERSEDED_PAUSE: Duration = Duration::from_millis(1);

/// Responses to be processed: of several, only the latest matters.
#[derive(Debug, Default)]
pub(super) struct ResponsePacing {
    spent: u32,
    /// Time from which the next response is earned.
    since: Option<Instant>,
    latest: Option<Bytes>,
    /// Superseded responses since the last pause.
    superseded: u32,
}

impl ResponsePacing {
    /// Adds a response. Returns the pause before the next may be read, if many superseded another.
    pub(super) fn add(&mut self, response: Bytes) -> Option<Duration> {
        self.latest.replace(response)?;
        self.superseded += 1;
        if self.superseded < SUPERSEDED_AT_ONCE {
            return None;
        }
        self.superseded = 0;
        Some(SUPERSEDED_PAUSE)
    }

    /// Takes the response if it may be processed now.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Bytes> {
        self.earn(now);
        if self.spent >= MAX_BURST {
            return None;
        }
        let response = self.latest.take()?;
        self.spent += 1;
        Some(response)
    }

    /// Takes the response, whenever the last one was processed.
    pub(super) const fn take(&mut self) -> Option<Bytes> {
        self.latest.take()
    }

    /// Waits until a response may be processed; never returns without one.
    pub(super) async fn due(&self) {
        match self.due_at() {
            Some(at) => sleep_until(at).await,
            None => pending().await,
        }
    }

    fn due_at(&self) -> Option<Instant> {
        self.latest.as_ref().and(self.since)?.checked_add(PROCESS_INTERVAL)
    }

    fn earn(&mut self, now: Instant) {
        let since = self.since.unwrap_or(now);
        let elapsed = now.saturating_duration_since(since).as_nanos();
        let earned = elapsed.checked_div(PROCESS_INTERVAL.as_nanos()).unwrap_or_default();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        self.spent = self.spent.saturating_sub(earned);
        let at = PROCESS_INTERVAL.checked_mul(earned).and_then(|time| since.checked_add(time));
        self.since = Some(if self.spent == 0 { now } else { at.unwrap_or(now) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(number: u32) -> Bytes {
        number.to_string().into()
    }

    #[test]
    fn a_flood_is_processed_at_intervals_and_its_last_response_counts() {
        let (mut pacing, now) = (ResponsePacing::default(), Instant::now());
        for number in 0..MAX_BURST {
            assert_eq!(pacing.add(response(number)), None);
            assert_eq!(pacing.take_due(now), Some(response(number)));
        }
        assert_eq!(pacing.add(response(100)), None);
        assert_eq!(pacing.take_due(now), None);
        let pauses: Vec<_> = (0..64).filter_map(|_| pacing.add(response(101))).collect();
        assert_eq!(pauses, [SUPERSEDED_PAUSE; 2]);
        let due = pacing.due_at().expect("one waits");
        assert_eq!(due - now, PROCESS_INTERVAL);
        assert_eq!(pacing.take_due(due), Some(response(101)));
        assert_eq!(pacing.add(response(102)), None);
        assert_eq!(pacing.take_due(due), None);
        assert_eq!((pacing.take(), pacing.take(), pacing.due_at()), (Some(response(102)), None, None));
    }

    #[test]
    fn after_a_quiet_time_responses_are_processed_at_once_again() {
        let (mut pacing, mut now) = (ResponsePacing::default(), Instant::now());
        for _ in 0..2 {
            for number in 0..MAX_BURST {
                pacing.add(response(number));
                assert_eq!(pacing.take_due(now), Some(response(number)));
            }
            pacing.add(response(7));
            assert_eq!(pacing.take_due(now), None);
            now += PROCESS_INTERVAL * MAX_BURST;
            pacing.take();
        }
    }
}
