//! Replies to requests whose callers no longer wait.
//!
//! A request that was decided otherwise after its deadline was sent nevertheless, and its reply usually arrives a little
//! later. Then its outcome is known after all, and the caller's substitute for it can be corrected.

use std::{fmt, mem, sync::Arc};

use parking_lot::Mutex;

use crate::request::Verdicts;

/// Outcome of a request that arrived after the deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LateOutcome {
    /// The verdicts of the request.
    Decided(Verdicts),
    /// A failure that certainly charged nothing.
    NotCharged,
}

type Handler = Box<dyn FnOnce(LateOutcome) + Send>;

/// The reply to a request that timed out, which may still arrive; clones share it. Dropped with its connection.
#[derive(Clone, Default)]
pub struct LateReply(Arc<Mutex<ReplyState>>);

#[derive(Default)]
enum ReplyState {
    #[default]
    Awaited,
    /// To be called when it arrives.
    Handled(Handler),
    /// Arrived before there was a handler.
    Arrived(LateOutcome),
    Done,
}

impl LateReply {
    /// Calls `handle` once when the reply arrives, at once if it has arrived. Never, if it does not arrive.
    pub fn on_arrival(&self, handle: impl FnOnce(LateOutcome) + Send + 'static) {
        let mut state = self.0.lock();
        match mem::replace(&mut *state, ReplyState::Done) {
            ReplyState::Awaited => *state = ReplyState::Handled(Box::new(handle)),
            ReplyState::Arrived(outcome) => {
                drop(state);
                handle(outcome);
            }
            ReplyState::Handled(_) | ReplyState::Done => {}
        }
    }

    /// Records that the reply has arrived.
    pub fn arrived(&self, outcome: LateOutcome) {
        let mut state = self.0.lock();
        match mem::replace(&mut *state, ReplyState::Done) {
            ReplyState::Awaited => *state = ReplyState::Arrived(outcome),
            ReplyState::Handled(handle) => {
                drop(state);
                handle(outcome);
            }
            ReplyState::Arrived(_) | ReplyState::Done => {}
        }
    }
}

impl fmt::Debug for LateReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LateReply")
    }
}

/// Clones are equal.
impl PartialEq for LateReply {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for LateReply {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outcomes that a handler received.
    fn recorder() -> (Arc<Mutex<Vec<LateOutcome>>>, impl Fn(LateOutcome) + Clone + Send + 'static) {
        let received = Arc::new(Mutex::new(Vec::new()));
        let own = Arc::clone(&received);
        (received, move |outcome| own.lock().push(outcome))
    }

    #[test]
    fn a_handler_receives_the_outcome_once_in_either_order() {
        for is_handled_first in [true, false] {
            let ((received, handler), reply) = (recorder(), LateReply::default());
            if is_handled_first {
                reply.on_arrival(handler.clone());
            }
            reply.clone().arrived(LateOutcome::NotCharged);
            reply.on_arrival(handler);
            reply.arrived(LateOutcome::Decided(Verdicts::new()));
            assert_eq!(*received.lock(), [LateOutcome::NotCharged]);
        }
    }
}
