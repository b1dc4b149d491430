//! Span of a call in progress.

use tokio::sync::mpsc::Sender;
use tollgate_core::clock::{Clock, Timestamp};
use tollgate_limiter::decision::Degraded;

use super::{
    metrics,
    record::{CallResult, Record},
};

/// Span of a call, which ends on drop. Empty for a call that is not sampled.
#[derive(Debug)]
pub struct Span(Option<Active>);

#[derive(Debug)]
struct Active {
    record: Box<Record>,
    /// Start of the decision.
    decision_start: Option<Timestamp>,
    finished: Sender<Box<Record>>,
}

impl Span {
    /// The span of a call that is not sampled.
    pub const fn off() -> Self {
        Self(None)
    }

    pub(super) fn start(record: Record, finished: Sender<Box<Record>>) -> Self {
        Self(Some(Active { record: Box::new(record), decision_start: None, finished }))
    }

    /// Records the start of the decision.
    pub fn decision_started(&mut self) {
        if let Some(active) = &mut self.0 {
            active.decision_start = Some(Clock::System.now());
        }
    }

    /// Records the end of the decision, and whether it is degraded.
    pub fn decided(&mut self, degraded: Option<Degraded>) {
        if let Some(active) = &mut self.0 {
            active.record.decision = active.decision_start.map(|start| (start, Clock::System.now()));
            active.record.degraded = degraded.map(|degraded| (degraded.policy.name(), degraded.reason));
        }
    }

    /// Records a decision, by its metric label.
    pub fn answered(&mut self, code: &'static str) {
        if let Some(active) = &mut self.0 {
            active.record.result = CallResult::Decided(code);
        }
    }

    /// Records an error, by its metric label.
    pub fn failed(&mut self, reason: &'static str) {
        if let Some(active) = &mut self.0 {
            active.record.result = CallResult::Failed(reason);
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(Active { mut record, finished, .. }) = self.0.take() {
            record.ended = Clock::System.now();
            let spans = if record.decision.is_some() { 2 } else { 1 };
            if finished.try_send(record).is_err() {
                metrics::spans_dropped(spans);
            }
        }
    }
}
