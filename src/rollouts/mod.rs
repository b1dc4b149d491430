//! Gradual changes of limits over the whole fleet: comparisons with candidates, ramps, and recommended and tuned limits.
//!
//! ```text
//! every instance ──> report: hits by side and by outcome ──> control store ──> view ──> API, dashboard
//!                                            one instance (lease) ──> ramps ──> switches ──> all instances
//!                                                                 └──> tuned limits ──> overrides ──> all instances
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
mod tuning;
mod view;

use std::{convert::Infallible, sync::Arc};

use tokio_util::task::AbortOnDropHandle;
use tollgate_control::Control;
use tollgate_limiter::{ActiveRules, Replicas};

pub(crate) use self::view::{CandidateView, RolloutView};

/// Background tasks, which end when this is dropped.
#[derive(Debug)]
pub(crate) struct RolloutTasks {
    _tasks: [AbortOnDropHandle<Infallible>; 2],
    view: RolloutView,
}

impl RolloutTasks {
    /// Starts the tasks on the current runtime.
    pub(crate) fn start(control: &Control, rules: &Arc<ActiveRules>) -> (Self, RolloutView) {
        let view = RolloutView::new(control.clone());
        let task = task::run(control.clone(), Arc::clone(rules), view.clone());
        let demand = demand::run(Arc::clone(rules), view.demand().clone());
        let tasks = [tokio::spawn(task), tokio::spawn(demand)];
        (Self { _tasks: tasks.map(AbortOnDropHandle::new), view: view.clone() }, view)
    }

    /// Counts the instances that share the traffic, by which limits are tuned; one until then.
    pub(crate) fn count_instances(&self, replicas: Replicas) {
        self.view.set_replicas(replicas);
    }
}
