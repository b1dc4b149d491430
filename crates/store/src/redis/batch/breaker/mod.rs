//! When a server is asked at all.
//!
//! A server that owes an answer and sends none for a while would cost every caller all of its time. So it is asked no
//! more, until it shows a sign of life. It is the silence that counts, from the last answer on, and not how many calls
//! ran out of time: callers may be in a hurry, and one slow command of somebody else is no outage.

use std::time::Duration;

use tokio::time::Instant;

use crate::redis::metrics::{self, OpenBreaker};

/// The shortest silence that is taken for an outage. Servers fork, evict and run slow commands.
const SHORTEST_SILENCE: Duration = Duration::from_millis(100);

/// How much silence one look can find: what a process that stood still itself did not see, it does not count.
const STRIDE: Duration = Duration::from_millis(10);

/// How long calls must be sent again before it is told so.
const CALM: Duration = Duration::from_secs(1);

/// Whether calls are sent to a server. Time is an argument.
#[derive(Debug)]
pub(super) struct Breaker {
    /// So much silence opens it.
    most_silence: Duration,
    state: State,
    into_store_error: Told,
}

#[derive(Debug)]
enum State {
    /// Calls are sent. What is awaited was awaited for so long, as far as was seen.
    Closed(Silence),
    /// They are not, for this reason.
    Open { cause: Cause, counted: OpenBreaker },
}

#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    lasts: Duration,
    looked_at: Option<Instant>,
}

/// Why no calls are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The server owes an answer.
    Silence,
    /// There is no connection.
    Disconnected,
}

/// What was said last.
#[derive(Clone, Copy, Debug)]
enum Told {
    Nothing,
    /// That the server is silent.
    Silent,
    /// The same; but calls are sent since then.
    Calming(Instant),
}

/// What came of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Same,
    /// It opened.
    Opened,
    /// It opened, and that is to be told.
    OpenedAnew,
    /// It is closed for so long that it is to be told.
    Calm,
}

impl Breaker {
    /// A closed one, for a server that may take so long for a decision.
    pub(super) fn new(timeout: Duration) -> Self {
        let most_silence = timeout.max(SHORTEST_SILENCE);
        Self { most_silence, state: State::Closed(Silence::default()), into_store_error: Told::Nothing }
    }

    pub(super) const fn cause(&self) -> Option<Cause> {
        match self.state {
            State::Closed(_) => None,
            State::Open { cause, .. } => Some(cause),
        }
    }

    /// How long an answer may be awaited at the most.
    pub(super) const fn most_silence(&self) -> Duration {
        self.most_silence
    }

    /// Whether there will be something to tell.
    pub(super) const fn is_calming(&self) -> bool {
        matches!(self.into_store_error, Told::Calming(_))
    }

    /// Takes note of the time. `is_owed` says whether an answer is awaited, or a first connection.
    pub(super) fn look(&mut self, now: Instant, is_owed: bool) -> Look {
        if let State::Closed(silence) = &mut self.state {
            if !is_owed {
                silence.looked_at = None;
            } else if silence.see(now) >= self.most_silence {
                return self.time_out();
            }
        }
        match self.into_store_error {
            Told::Calming(since) if now.saturating_duration_since(since) >= CALM => {
                self.into_store_error = Told::Nothing;
                Look::Calm
            }
            _ => Look::Same,
        }
    }

    /// Takes note that the server was silent for too long.
    pub(super) fn time_out(&mut self) -> Look {
        self.open(Cause::Silence);
        match std::mem::replace(&mut self.into_store_error, Told::Silent) {
            Told::Nothing => Look::OpenedAnew,
            Told::Silent | Told::Calming(_) => Look::Opened,
        }
    }

    /// Takes note of a sign of life, on the connection that there is now.
    pub(super) fn hear(&mut self, now: Instant) {
        self.state = State::Closed(Silence::default());
        if matches!(self.into_store_error, Told::Silent) {
            self.into_store_error = Told::Calming(now);
        }
    }

    /// Takes note of a new connection; says whether a sign of life is missed all the same. One that was silent has to
    /// show that it decides: connections may be let in where calls are held up, as before a planned failover.
    pub(super) fn doubts(&mut self) -> bool {
        let was_silent = matches!(self.into_store_error, Told::Silent);
        if was_silent {
            self.open(Cause::Silence);
        }
        was_silent
    }

    /// Takes note that there is no connection.
    pub(super) fn lose(&mut self) {
        if self.cause() != Some(Cause::Disconnected) {
            self.open(Cause::Disconnected);
        }
        // Whether it is calm is not known before there is one.
        if self.is_calming() {
            self.into_store_error = Told::Silent;
        }
    }

    fn open(&mut self, cause: Cause) {
        let counted = match std::mem::replace(&mut self.state, State::Closed(Silence::default())) {
            State::Open { counted, .. } => counted,
            State::Closed(_) => metrics::breaker_opened(),
        };
        self.state = State::Open { cause, counted };
    }
}

impl Silence {
    /// Adds what passed since the last look; tells how long it lasts by now.
    fn see(&mut self, now: Instant) -> Duration {
        let since = self.looked_at.replace(now).unwrap_or(now);
        self.lasts = self.lasts.saturating_add(now.saturating_duration_since(since).min(STRIDE));
        self.lasts
    }
}

#[cfg(test)]
mod tests;
