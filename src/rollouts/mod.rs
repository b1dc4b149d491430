//! Gradual changes of limits over the whole fleet: comparisons with candidates, ramps, and recommended limits.
//!
//! ```text
//! every instance ──> report: hits by side and by outcome ──> control store ──> view ──> API, dashboard
//!                                            one instance (lease) ──> ramps ──> switches ──> all instances
//! ```
//!
//! Limits are recommended from the demand of keys, which each instance observes alone.
//!
//! A report is stored every two seconds, while there is anything to report. While the control store does not respond, no
//! ramp advances.

mod comparisons;
mod demand;
pub mod metrics;
mod ramps;
mod report;
mod task;
mod view;

use std::{convert::Infallible, sync::Arc};

use tokio_util::task::AbortOnDropHandle;
use tollgate_control::Control;
use tollgate_limiter::ActiveRules;

pub(crate) use self::view::{CandidateView, KeyView, RolloutView};

/// Background tasks, which end when this is dropped.
#[derive(Debug)]
pub(crate) struct RolloutTasks {
    _tasks: [AbortOnDropHandle<Infallible>; 2],
}

impl RolloutTasks {
    /// Starts the tasks on the current runtime.
    pub(crate) fn start(control: &Control, rules: &Arc<ActiveRules>) -> (Self, RolloutView) {
        let view = RolloutView::new(control.clone());
        let task = task::run(control.clone(), Arc::clone(rules), view.clone());
        let demand = demand::run(Arc::clone(rules), view.demand().clone());
        let tasks = [tokio::spawn(task), tokio::spawn(demand)];
        (Self { _tasks: tasks.map(AbortOnDropHandle::new) }, view)
    }
}
