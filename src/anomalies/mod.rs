//! Detection of unusual traffic of rules and domains, over the whole fleet.
//!
//! ```text
//! each minute, every instance ──> tally: its hits ──> control store: sums of the minute
//!             one instance (lease) ──> evaluator: baselines, bands ──> gauge, events, view of the API
//! ```
//!
//! [`tollgate_anomaly`] has the method. Minutes are those of UTC by the clock of each instance, which must agree with that
//! of the store to within some minutes. A minute that an instance did not report in whole is a gap.

mod evaluator;
mod limits;
pub mod metrics;
mod names;
mod tally;
mod task;
mod view;

use std::{convert::Infallible, sync::Arc};

use tokio_util::task::AbortOnDropHandle;
pub use tollgate_anomaly::Sensitivity;
use tollgate_control::Control;
use tollgate_limiter::ActiveRules;

use self::task::AnomalyTask;
pub use self::view::{AnomalyStatus, AnomalyView};

/// Background task, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct AnomalyWatch {
    _task: AbortOnDropHandle<Infallible>,
}

impl AnomalyWatch {
    /// Starts the task on the current runtime; `status` has what it finds.
    pub(crate) fn start(
        sensitivity: Sensitivity,
        control: &Control,
        rules: &Arc<ActiveRules>,
        status: &AnomalyStatus,
    ) -> Self {
        let task = AnomalyTask::new(sensitivity, control.clone(), Arc::clone(rules), status.clone());
        Self { _task: AbortOnDropHandle::new(tokio::spawn(task.run())) }
    }
}
