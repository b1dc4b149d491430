//! What the driver knows of the server, and what it does when that changes.

use tokio::time::Instant;

use super::{
    breaker::{Cause, Look},
    driver::Driver,
};
use crate::redis::connection::{Current, SendError, State};

impl Driver {
    /// Takes note of what the connection has become.
    pub(super) fn reconsider(&mut self, state: &State) {
        self.way = None;
        match state.current() {
            // The breaker sees how long this lasts.
            None => {}
            Some(Ok(current)) => {
                if self.connection != current.number {
                    self.connection = current.number;
                    self.local.forget_all();
                }
                self.way = Some(current);
                if self.breaker.doubts() {
                    self.give_up(&SendError::Silent);
                } else {
                    self.recover();
                }
            }
            Some(Err(error)) => {
                self.breaker.lose();
                self.give_up(&error);
            }
        }
    }

    /// Takes note of the time; says whether the server was found silent.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        let is_owed = match self.way {
            Some(_) => self.under_way() > 0,
            None => !self.shared.queue.lock().is_empty(),
        };
        match self.breaker.look(now, is_owed) {
            Look::Same => false,
            Look::Calm => {
                tracing::info!(server = %self.server, "Redis answers again");
                false
            }
            opened @ (Look::Opened | Look::OpenedAnew) => {
                self.fell_silent(opened);
                true
            }
        }
    }

    /// Takes note that an answer was awaited for longer than any silence may last.
    pub(super) fn missed_answer(&mut self) {
        let opened = self.breaker.time_out();
        self.fell_silent(opened);
    }

    fn fell_silent(&mut self, opened: Look) {
        if opened == Look::OpenedAnew {
            let (server, silence) = (&self.server, self.breaker.most_silence());
            tracing::warn!(%server, ?silence, "Redis is silent; calls fail at once until it answers");
        }
        self.give_up(&SendError::Silent);
        for batch in std::mem::take(&mut self.in_flight) {
            self.fail_batch(batch, &SendError::Late);
        }
    }

    /// The connection to listen on for a sign of life, if one is missed.
    pub(super) fn missed(&self) -> Option<Current> {
        self.way.clone().filter(|_| self.breaker.cause() == Some(Cause::Silence))
    }

    /// Takes note of a sign of life on the connection `number`.
    pub(super) fn recovered(&mut self, number: u64) {
        if self.way.as_ref().is_some_and(|current| current.number == number) {
            self.recover();
        }
    }

    /// Takes note that the connection `number` broke: calls wait until it is known what comes of it, which is soon.
    pub(super) fn disconnected(&mut self, number: u64) {
        self.way.take_if(|current| current.number == number);
    }

    /// How many flights await an answer on the present connection.
    pub(super) fn under_way(&self) -> usize {
        self.in_flight.iter().filter(|batch| batch.connection == self.connection).count()
    }

    fn recover(&mut self) {
        let was_open = self.breaker.cause().is_some();
        self.breaker.hear(Instant::now());
        if was_open {
            self.shared.queue.lock().open();
        }
    }

    /// Tells everybody who waits, or comes, that the server is not asked.
    fn give_up(&mut self, error: &SendError) {
        self.again.drain(..).for_each(|mut group| group.fail(error));
        self.shared.queue.lock().shut(error);
    }
}
