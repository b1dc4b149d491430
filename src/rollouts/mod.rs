//! Gradual changes of limits over the whole fleet: comparisons with candidates, and ramps.
//!
//! ```text
//! every instance ──> report: hits by side and by outcome ──> control store ──> view ──> API, dashboard
//!                                            one instance (lease) ──> ramps ──> switches ──> all instances
//! ```
//!
//! A report is stored every two seconds, while there is anything to report. While the control store does not respond, no
//! ramp advances.

mod comparisons;
pub mod metrics;
mod ramps;
mod report;
mod task;
mod view;

use std::{convert::Infallible, sync::Arc};

use tokio_util::task::AbortOnDropHandle;
use tollgate_control::Control;
use tollgate_limiter::ActiveRules;

pub(crate) use self::view::{CandidateView, RolloutView};

/// Background task, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct RolloutTask {
    _task: AbortOnDropHandle<Infallible>,
}

impl RolloutTask {
    /// Starts the task on the current runtime.
    pub(crate) fn start(control: &Control, rules: &Arc<ActiveRules>) -> (Self, RolloutView) {
        let view = RolloutView::new(control.clone());
        let task = task::run(control.clone(), Arc::clone(rules), view.clone());
        (Self { _task: AbortOnDropHandle::new(tokio::spawn(task)) }, view)
    }
}
