//! Estimate of the time that a new call would take.
//!
//! A server executes all calls that it receives, even those whose callers no longer wait; beyond its capacity, it soon
//! does nothing else. So a call that would miss its deadline is not sent at all: by Little's law, one with `n` calls ahead
//! takes `n` times the server's time per call.
//!
//! That time is not observed directly: a reply takes a round trip, which is that of small writes with none before them, and
//! the worker reads it when its other tasks leave it time. Each reply therefore yields an interval for the time per call,
//! and moves the estimate only if that is outside. As in BBR (Cardwell et al., "BBR: Congestion-Based Congestion Control",
//! 2016), the round trip is the shortest one seen, and a sample that the load limited, and not the server, can show that the
//! server is faster, but not that it is slower.

use std::time::Duration;

use tokio::time::Instant;

/// Calls ahead up to which a call is always accepted: otherwise no sample would lower an estimate that is too high.
const MIN_CALLS: usize = 512;

/// Calls ahead, queued or in flight, beyond which none is accepted.
const MAX_CALLS: usize = 4_096;

/// Shortest time of the server that raises the estimate. A shorter one may be that of the network.
const MIN_RAISING_TIME: Duration = Duration::from_millis(1);

/// Part of the round trip that varies: time of the network that may have been shorter than estimated.
const ROUND_TRIP_JITTER: Duration = Duration::from_micros(500);

/// Largest write whose time counts as the first round trip.
const MAX_FIRST_CALLS: usize = 128;

/// Calls in flight up to which a longer round trip raises that known, by this divisor.
const MAX_LONE_CALLS: usize = 4;
const ROUND_TRIP_DIVISOR: u32 = 64;

/// Interval at which the worker looks for replies. One is assumed to have arrived half an interval after the last look at
/// the latest: a longer time is the worker's.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Part of the time left to a caller that the calls ahead may take, in percent. The rest is for what varies, and for the way
/// back.
const AHEAD_PERCENT: u32 = 65;

/// Divisor of the moving average: a sample has the weight 1/4.
const SMOOTHING_DIVISOR: u64 = 4;

/// Estimate before the first sample: about that of a server with a core of its own.
const INITIAL_NANOS: u64 = 4_000;

/// Moving average of the server's time per call, and the number of calls in flight.
#[derive(Debug)]
pub(super) struct LatencyEstimate {
    in_flight: usize,
    /// Moving average of the server's time per call.
    nanos_per_call: u64,
    /// Time to the reply to a small write, without any before it.
    round_trip: Option<Duration>,
    /// When the connection was opened. Replies to earlier writes are no samples.
    connected_at: Option<Instant>,
    completed_at: Option<Instant>,
    /// When replies that had arrived were read last.
    looked_at: Option<Instant>,
    /// When the calls of the latest request were made, and whether they are accepted.
    latest: Option<(Instant, bool)>,
}

impl Default for LatencyEstimate {
    fn default() -> Self {
        Self {
            in_flight: 0,
            nanos_per_call: INITIAL_NANOS,
            round_trip: None,
            connected_at: None,
            completed_at: None,
            looked_at: None,
            latest: None,
        }
    }
}

impl LatencyEstimate {
    /// Records a new connection, perhaps to another server.
    pub(super) const fn connected(&mut self, now: Instant) {
        (self.round_trip, self.connected_at) = (None, Some(now));
    }

    /// Records that `calls` calls were sent.
    pub(super) const fn sent(&mut self, calls: usize, now: Instant) {
        if self.in_flight == 0 {
            self.looked_at = Some(now);
        }
        self.in_flight = self.in_flight.saturating_add(calls);
    }

    /// Number of calls sent and not yet answered.
    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Records that `calls` calls are no longer awaited.
    pub(super) const fn remove(&mut self, calls: usize) {
        self.in_flight = self.in_flight.saturating_sub(calls);
    }

    /// Whether it is time to look for replies.
    pub(super) fn is_look_due(&self, now: Instant) -> bool {
        let since = self.looked_at.map(|looked_at| now.saturating_duration_since(looked_at));
        self.in_flight > 0 && since.is_some_and(|since| since >= LOOK_INTERVAL)
    }

    /// Records that all replies that had arrived by `now` were read.
    pub(super) fn looked(&mut self, now: Instant) {
        self.looked_at = self.looked_at.max(Some(now));
    }

    /// Records the reply to `calls` calls that were sent together.
    pub(super) fn complete(&mut self, calls: usize, sent_at: Instant, now: Instant) {
        if self.connected_at.is_some_and(|connected_at| sent_at <= connected_at) {
            return self.remove(calls);
        }
        let started = self.started(calls, sent_at, now);
        self.remove(calls);
        let looked_at = self.looked_at.replace(now).map_or(started, |looked_at| looked_at.max(started));
        let unseen = now.saturating_duration_since(looked_at).min(LOOK_INTERVAL);
        let half = unseen.checked_div(2).unwrap_or_default();
        let at_least = looked_at.saturating_duration_since(started).saturating_add(half);
        let at_most = now.saturating_duration_since(started).saturating_add(ROUND_TRIP_JITTER);
        let slowest = nanos_of(at_most, calls);
        let fastest = match at_least < MIN_RAISING_TIME {
            true => 0,
            false => nanos_of(at_least, calls.max(MIN_CALLS)),
        };
        let part = |of: u64| of.checked_div(SMOOTHING_DIVISOR).unwrap_or_default();
        let sample = self.nanos_per_call.min(slowest).max(fastest);
        let rest = self.nanos_per_call.saturating_sub(part(self.nanos_per_call));
        self.nanos_per_call = rest.saturating_add(part(sample));
    }

    /// When the server began to execute a write whose reply is read `now`, plus the round trip. Earlier writes are executed
    /// first.
    fn started(&mut self, calls: usize, sent_at: Instant, now: Instant) -> Instant {
        let time = now.saturating_duration_since(sent_at);
        self.round_trip = match self.round_trip {
            Some(known) if self.in_flight <= MAX_LONE_CALLS => {
                let step = known.checked_div(ROUND_TRIP_DIVISOR).unwrap_or_default();
                Some(known.saturating_add(step).min(time))
            }
            Some(known) => Some(known.min(time)),
            None => Some(time).filter(|_| calls <= MAX_FIRST_CALLS),
        };
        let arrived = sent_at.checked_add(self.round_trip.unwrap_or_default()).unwrap_or(sent_at);
        self.completed_at.replace(now).map_or(arrived, |completed_at| completed_at.max(arrived))
    }

    /// Whether to accept a call that was made at `made_at`, behind `waiting` queued ones, and has to be answered within
    /// `time_left`. The calls of one request are made at one time: all are accepted, or none.
    pub(super) fn accepts(&mut self, made_at: Instant, waiting: usize, time_left: Duration) -> bool {
        match self.latest {
            Some((latest, is_accepted)) if latest == made_at => is_accepted,
            _ => {
                let is_accepted = self.meets_deadline(waiting, time_left);
                self.latest = Some((made_at, is_accepted));
                is_accepted
            }
        }
    }

    fn meets_deadline(&self, waiting: usize, time_left: Duration) -> bool {
        let ahead = self.in_flight.saturating_add(waiting);
        let nanos = self.nanos_per_call.saturating_mul(ahead as u64);
        let percent = time_left.checked_div(100).unwrap_or_default();
        let is_in_time = Duration::from_nanos(nanos) < percent.saturating_mul(AHEAD_PERCENT);
        ahead < MIN_CALLS || (ahead < MAX_CALLS && is_in_time)
    }
}

/// Nanoseconds per call, of calls that took `time`.
fn nanos_of(time: Duration, calls: usize) -> u64 {
    let nanos = time.as_nanos().checked_div(calls as u128).unwrap_or_default();
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
