//! Reasons why a store does not decide, and the reply that comes after one of them.

use std::{fmt, mem, sync::Arc, time::Duration};

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::request::Verdicts;

/// The verdicts of each request, or the reason why there are none, in the order of the requests.
pub type Decisions = SmallVec<[Result<Verdicts, StoreError>; 1]>;

/// Reason why a store did not decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No response in time; whether anything was charged is unknown, unless the reply still arrives.
    #[error("no response within {0:?}")]
    Timeout(Duration, Option<LateReply>),
    /// Not sent: the deadline passed in the queue. Nothing was charged.
    #[error("{}", queue_timeout(.0))]
    QueueTimeout(Duration),
    /// Not sent: the server owes responses, so the circuit breaker is open. Nothing was charged.
    #[error("not sent: circuit breaker open, the server does not respond")]
    BreakerOpen,
    /// Not sent: the queue of the server is full, or the response would miss its deadline. Nothing was charged.
    #[error("not sent: too many requests queued")]
    Overloaded,
    /// Not sent: an operator switched the domain to local decisions. Nothing was charged.
    #[error("not sent: an emergency switch is set")]
    Emergency,
    /// No connection. Nothing was charged.
    #[error("not connected: {0}")]
    Unreachable(String),
    /// The connection broke with the request in flight; whether anything was charged is unknown.
    #[error("connection lost: {0}")]
    Disconnected(String),
    /// The counters were migrating between servers until the deadline. Nothing was charged.
    #[error("counters are migrating to another server: {0}")]
    SlotMigrating(String),
    /// The server replied with an error that rules out a charge: it currently accepts no commands, or no writes, or not those
    /// of this user.
    #[error("store declined: {0}")]
    Declined(String),
    /// The server replied with an error; whether anything was charged is unknown.
    #[error("store error: {0}")]
    Refused(String),
    /// The reply is not of the agreed form; whether anything was charged is unknown.
    #[error("malformed reply from the store")]
    MalformedReply,
}

fn queue_timeout(time: &Duration) -> String {
    match time {
        &Duration::ZERO => "not sent: the deadline had passed on arrival".into(),
        time => format!("not sent: timed out in the queue after {time:?}"),
    }
}

impl StoreError {
    /// Whether the request certainly had no effect: nothing was charged, nor refunded.
    pub const fn charged_nothing(&self) -> bool {
        match self {
            Self::QueueTimeout(_)
            | Self::BreakerOpen
            | Self::Overloaded
            | Self::Emergency
            | Self::Unreachable(_)
            | Self::SlotMigrating(_)
            | Self::Declined(_) => true,
            Self::Timeout(..) | Self::Disconnected(_) | Self::Refused(_) | Self::MalformedReply => false,
        }
    }

    /// Whether the store may have decided other requests meanwhile: it was too slow for this one.
    pub const fn is_slowness(&self) -> bool {
        matches!(self, Self::Timeout(..) | Self::QueueTimeout(_) | Self::Overloaded)
    }

    /// Labels of all errors in metrics.
    pub const LABELS: [&'static str; 11] = [
        "timeout",
        "queue_timeout",
        "breaker_open",
        "overloaded",
        "emergency",
        "unreachable",
        "disconnected",
        "slot_migrating",
        "declined",
        "refused",
        "malformed_reply",
    ];

    /// The label of the error in metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Timeout(..) => "timeout",
            Self::QueueTimeout(_) => "queue_timeout",
            Self::BreakerOpen => "breaker_open",
            Self::Overloaded => "overloaded",
            Self::Emergency => "emergency",
            Self::Unreachable(_) => "unreachable",
            Self::Disconnected(_) => "disconnected",
            Self::SlotMigrating(_) => "slot_migrating",
            Self::Declined(_) => "declined",
            Self::Refused(_) => "refused",
            Self::MalformedReply => "malformed_reply",
        }
    }
}

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
///
/// The request was decided otherwise after its deadline; once its outcome is known after all, the caller's substitute for
/// it can be corrected.
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
