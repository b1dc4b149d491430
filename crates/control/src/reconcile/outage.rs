//! Times in which the store does not answer.

use std::time::Duration;

use tokio::time::Instant;

use crate::{ControlError, metrics, stored::Reach};

/// From so long on without an answer, others may have gone on without this instance.
const LONG: Duration = Duration::from_secs(60);

/// Whether the store answers, told when that changes.
#[derive(Debug, Default)]
pub(super) struct Outage {
    problem: Option<String>,
    /// When it last answered.
    answered: Option<Instant>,
    /// When it answered again after a long time.
    returned: Option<Instant>,
}

impl Outage {
    pub(super) fn begin(&mut self, error: &ControlError) {
        metrics::store_up(false);
        if self.problem.is_none() {
            tracing::error!("what was enforced stays, whatever is changed meanwhile: {error}");
        }
        self.problem = Some(error.to_string());
    }

    pub(super) fn end(&mut self) {
        metrics::store_up(true);
        if self.problem.take().is_some() {
            tracing::info!("the store of the rules answers again");
        }
        let before = self.answered.replace(Instant::now());
        if before.is_some_and(|at| at.elapsed() > LONG) {
            self.returned = self.answered;
        }
    }

    /// How the store was reached before it answered. That it was not for long counts until what was lost meanwhile has
    /// been seen to.
    pub(super) fn reach(&self) -> Reach {
        match self.returned.is_some_and(|at| at.elapsed() < LONG) {
            true => Reach::CutOff,
            false => Reach::Steady,
        }
    }

    /// Why it does not answer, if it does not.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}
