//! Circuit breaker of a server.
//!
//! A server that owes responses and sends none would cost every caller its whole timeout. So requests are no longer
//! sent to it until it responds. The criterion is silence since the last response, not the number of timeouts: the
//! deadlines of callers may be short, and one slow command of another client is no outage.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::redis::servers::{BREAKERS_OPENED, Counted, Server};

/// The shortest silence that opens the breaker. Servers fork, evict and run slow commands.
const MIN_SILENCE: Duration = Duration::from_millis(100);

/// Silence added by one tick, at most: time during which this process was suspended does not count.
const MAX_OBSERVED_GAP: Duration = Duration::from_millis(10);

/// Time for which requests must be sent again before the recovery is logged.
const RECOVERY_LOG_DELAY: Duration = Duration::from_secs(1);

/// Whether requests are sent to a server. Time is an argument.
#[derive(Debug)]
pub(super) struct Breaker {
    server: Arc<Server>,
    /// Silence that opens the breaker.
    pub(super) max_silence: Duration,
    state: BreakerState,
    logged: OutageState,
}

#[derive(Debug)]
enum BreakerState {
    /// Requests are sent; the silence observed so far.
    Closed(Silence),
    /// Requests fail at once.
    Open { cause: OpenCause, gauge: Counted },
}

#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    duration: Duration,
    seen_at: Option<Instant>,
}

/// Reason why no requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenCause {
    /// The server owes a response.
    Silence,
    /// There is no connection.
    Disconnected,
}

/// Outage as logged last.
#[derive(Clone, Copy, Debug)]
enum OutageState {
    None,
    /// The outage was logged.
    Silent,
    /// The outage was logged; requests are sent since that time.
    Recovering(Instant),
}

/// Result of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BreakerEvent {
    Unchanged,
    /// Opened, during an outage already logged.
    Reopened,
    /// Opened; to be logged.
    OutageBegan,
    /// Closed for long enough for the recovery to be logged.
    OutageEnded,
}

impl Breaker {
    /// A closed breaker, for a server with this time limit for a decision.
    pub(super) fn new(server: Arc<Server>, timeout: Duration) -> Self {
        let max_silence = timeout.max(MIN_SILENCE);
        Self {
            server,
            max_silence,
            state: BreakerState::Closed(Silence::default()),
            logged: OutageState::None,
        }
    }

    pub(super) const fn cause(&self) -> Option<OpenCause> {
        match self.state {
            BreakerState::Closed(_) => None,
            BreakerState::Open { cause, .. } => Some(cause),
        }
    }

    /// Whether a recovery is still to be logged.
    pub(super) const fn is_recovering(&self) -> bool {
        matches!(self.logged, OutageState::Recovering(_))
    }

    /// Advances the time. `is_awaited` states whether a response is awaited, or a first connection.
    pub(super) fn tick(&mut self, now: Instant, is_awaited: bool) -> BreakerEvent {
        if let BreakerState::Closed(silence) = &mut self.state {
            if !is_awaited {
                silence.seen_at = None;
            } else if silence.extend_to(now) >= self.max_silence {
                return self.trip();
            }
        }
        match self.logged {
            OutageState::Recovering(since) if now.duration_since(since) >= RECOVERY_LOG_DELAY => {
                self.logged = OutageState::None;
                BreakerEvent::OutageEnded
            }
            _ => BreakerEvent::Unchanged,
        }
    }

    /// Records that the silence lasted too long.
    pub(super) fn trip(&mut self) -> BreakerEvent {
        self.open(OpenCause::Silence);
        match std::mem::replace(&mut self.logged, OutageState::Silent) {
            OutageState::None => BreakerEvent::OutageBegan,
            OutageState::Silent | OutageState::Recovering(_) => BreakerEvent::Reopened,
        }
    }

    /// Records a response on the current connection.
    pub(super) fn responded(&mut self, now: Instant) {
        self.state = BreakerState::Closed(Silence::default());
        if matches!(self.logged, OutageState::Silent) {
            self.logged = OutageState::Recovering(now);
        }
    }

    /// Records a new connection; returns whether the server must respond before requests are sent. After an outage it
    /// must: a server may accept connections while it holds up commands, as before a planned failover.
    pub(super) fn reconnected(&mut self) -> bool {
        let was_silent = matches!(self.logged, OutageState::Silent);
        if was_silent {
            self.open(OpenCause::Silence);
        }
        was_silent
    }

    /// Records that there is no connection.
    pub(super) fn disconnected(&mut self) {
        if self.cause() != Some(OpenCause::Disconnected) {
            self.open(OpenCause::Disconnected);
        }
        // Whether the server has recovered is unknown until there is one.
        if self.is_recovering() {
            self.logged = OutageState::Silent;
        }
    }

    fn open(&mut self, cause: OpenCause) {
        let gauge = match std::mem::replace(&mut self.state, BreakerState::Closed(Silence::default())) {
            BreakerState::Open { gauge, .. } => gauge,
            BreakerState::Closed(_) => {
                BREAKERS_OPENED.add(1);
                Counted::new(Arc::clone(&self.server), |entry| &mut entry.open_breakers)
            }
        };
        self.state = BreakerState::Open { cause, gauge };
    }
}

impl Silence {
    /// Adds the time since the last tick; returns the total.
    fn extend_to(&mut self, now: Instant) -> Duration {
        let since = self.seen_at.replace(now).unwrap_or(now);
        self.duration = self.duration.saturating_add(now.duration_since(since).min(MAX_OBSERVED_GAP));
        self.duration
    }
}

#[cfg(test)]
mod tests;
