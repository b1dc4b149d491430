//! When a server is asked at all.
//!
//! A server that owes an answer and sends none for a while would cost every caller all of its time. So it is asked no
//! more, until it shows a sign of life. It is the silence that counts, from the last answer on, and not how many calls
//! ran out of time: callers may be in a hurry, and one slow command of somebody else is no outage.

use std::time::Duration;

use tokio::time::Instant;

use crate::redis::metrics::{self, OpenBreaker};

/// The shortest silence that is taken for an outage. Servers fork, evict and run slow commands.
const MIN_SILENCE: Duration = Duration::from_millis(100);

/// How much silence one look can find: what a process that stood still itself did not see, it does not count.
const MAX_OBSERVED_GAP: Duration = Duration::from_millis(10);

/// How long calls must be sent again before it is told so.
const RECOVERY_LOG_DELAY: Duration = Duration::from_secs(1);

/// Whether calls are sent to a server. Time is an argument.
#[derive(Debug)]
pub(super) struct Breaker {
    /// So much silence opens it.
    max_silence: Duration,
    state: BreakerState,
    logged: OutageState,
}

#[derive(Debug)]
enum BreakerState {
    /// Calls are sent. What is awaited was awaited for so long, as far as was seen.
    Closed(Silence),
    /// They are not, for this reason.
    Open { cause: OpenCause, gauge: OpenBreaker },
}

#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    duration: Duration,
    seen_at: Option<Instant>,
}

/// Why no calls are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenCause {
    /// The server owes an answer.
    Silence,
    /// There is no connection.
    Disconnected,
}

/// What was said last.
#[derive(Clone, Copy, Debug)]
enum OutageState {
    None,
    /// That the server is silent.
    Silent,
    /// The same; but calls are sent since then.
    Recovering(Instant),
}

/// What came of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BreakerEvent {
    Unchanged,
    /// It opened.
    Reopened,
    /// It opened, and that is to be told.
    OutageBegan,
    /// It is closed for so long that it is to be told.
    OutageEnded,
}

impl Breaker {
    /// A closed one, for a server that may take so long for a decision.
    pub(super) fn new(timeout: Duration) -> Self {
        let max_silence = timeout.max(MIN_SILENCE);
        Self { max_silence, state: BreakerState::Closed(Silence::default()), logged: OutageState::None }
    }

    pub(super) const fn cause(&self) -> Option<OpenCause> {
        match self.state {
            BreakerState::Closed(_) => None,
            BreakerState::Open { cause, .. } => Some(cause),
        }
    }

    /// How long an answer may be awaited at the most.
    pub(super) const fn max_silence(&self) -> Duration {
        self.max_silence
    }

    /// Whether there will be something to tell.
    pub(super) const fn is_recovering(&self) -> bool {
        matches!(self.logged, OutageState::Recovering(_))
    }

    /// Takes note of the time. `is_owed` says whether an answer is awaited, or a first connection.
    pub(super) fn tick(&mut self, now: Instant, is_awaited: bool) -> BreakerEvent {
        if let BreakerState::Closed(silence) = &mut self.state {
            if !is_awaited {
                silence.seen_at = None;
            } else if silence.extend_to(now) >= self.max_silence {
                return self.trip();
            }
        }
        match self.logged {
            OutageState::Recovering(since) if now.saturating_duration_since(since) >= RECOVERY_LOG_DELAY => {
                self.logged = OutageState::None;
                BreakerEvent::OutageEnded
            }
            _ => BreakerEvent::Unchanged,
        }
    }

    /// Takes note that the server was silent for too long.
    pub(super) fn trip(&mut self) -> BreakerEvent {
        self.open(OpenCause::Silence);
        match std::mem::replace(&mut self.logged, OutageState::Silent) {
            OutageState::None => BreakerEvent::OutageBegan,
            OutageState::Silent | OutageState::Recovering(_) => BreakerEvent::Reopened,
        }
    }

    /// Takes note of a sign of life, on the connection that there is now.
    pub(super) fn responded(&mut self, now: Instant) {
        self.state = BreakerState::Closed(Silence::default());
        if matches!(self.logged, OutageState::Silent) {
            self.logged = OutageState::Recovering(now);
        }
    }

    /// Takes note of a new connection; says whether a sign of life is missed all the same. One that was silent has to
    /// show that it decides: connections may be let in where calls are held up, as before a planned failover.
    pub(super) fn reconnected(&mut self) -> bool {
        let was_silent = matches!(self.logged, OutageState::Silent);
        if was_silent {
            self.open(OpenCause::Silence);
        }
        was_silent
    }

    /// Takes note that there is no connection.
    pub(super) fn disconnected(&mut self) {
        if self.cause() != Some(OpenCause::Disconnected) {
            self.open(OpenCause::Disconnected);
        }
        // Whether it is calm is not known before there is one.
        if self.is_recovering() {
            self.logged = OutageState::Silent;
        }
    }

    fn open(&mut self, cause: OpenCause) {
        let gauge = match std::mem::replace(&mut self.state, BreakerState::Closed(Silence::default())) {
            BreakerState::Open { gauge, .. } => gauge,
            BreakerState::Closed(_) => metrics::breaker_opened(),
        };
        self.state = BreakerState::Open { cause, gauge };
    }
}

impl Silence {
    /// Adds what passed since the last look; tells how long it lasts by now.
    fn extend_to(&mut self, now: Instant) -> Duration {
        let since = self.seen_at.replace(now).unwrap_or(now);
        self.duration =
            self.duration.saturating_add(now.saturating_duration_since(since).min(MAX_OBSERVED_GAP));
        self.duration
    }
}

#[cfg(test)]
mod tests;
