//! A call while it is answered.

use tokio::sync::mpsc::Sender;

use super::metrics;
use super::record::{Outcome, Record};
use crate::{
    clock::{Clock, Timestamp},
    verdict::Degraded,
};

/// A call that is recorded, or one that is not, of which nothing is kept. It ends when it is dropped.
#[derive(Debug)]
pub struct Span(Option<Open>);

#[derive(Debug)]
struct Open {
    record: Box<Record>,
    /// When its counters began to be decided.
    asked: Option<Timestamp>,
    finished: Sender<Box<Record>>,
}

impl Span {
    /// A call that is not recorded.
    pub const fn off() -> Self {
        Self(None)
    }

    pub(super) fn open(record: Record, finished: Sender<Box<Record>>) -> Self {
        Self(Some(Open { record: Box::new(record), asked: None, finished }))
    }

    /// The counters are asked now.
    pub fn asks(&mut self) {
        if let Some(open) = &mut self.0 {
            open.asked = Some(Clock::System.now());
        }
    }

    /// The counters are decided, by the store or without it.
    pub fn is_decided(&mut self, degraded: Option<Degraded>) {
        if let Some(open) = &mut self.0 {
            open.record.decision = open.asked.map(|asked| (asked, Clock::System.now()));
            open.record.degraded = degraded.map(|degraded| (degraded.policy.name(), degraded.reason));
        }
    }

    /// The call is answered with a decision, by its name in metrics.
    pub fn is_answered(&mut self, code: &'static str) {
        if let Some(open) = &mut self.0 {
            open.record.outcome = Outcome::Decided(code);
        }
    }

    /// The call is answered with an error, by its name in metrics.
    pub fn has_failed(&mut self, reason: &'static str) {
        if let Some(open) = &mut self.0 {
            open.record.outcome = Outcome::Failed(reason);
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(Open { mut record, finished, .. }) = self.0.take() {
            record.ended = Clock::System.now();
            let spans = if record.decision.is_some() { 2 } else { 1 };
            if finished.try_send(record).is_err() {
                metrics::spans_dropped(spans);
            }
        }
    }
}
