//! Traffic of all instances: top talkers, history, and the events that operators are notified of.
//!
//! ```text
//! talkers, history ──> publisher ──> control store ──> view ──> API, dashboard
//!                                                       └──> rounds (one instance) ──> gauges
//! events ──> log in the control store ──> webhook (one instance)
//! ```
//!
//! - `publisher` stores a report of this instance every two seconds, and adds to the totals of each interval.
//! - `view` reads the reports and totals of all instances.
//! - `rounds` exports the rates of the heaviest keys, in one instance.
//! - `webhook` delivers each event once, from one instance of the fleet.

pub mod history;
pub mod metrics;
mod publisher;
mod report;
mod rounds;
mod view;
mod webhook;

use std::{convert::Infallible, time::Duration};

use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tollgate_control::{Control, log_events};

pub(crate) use self::view::{FleetReports, FleetView, InstanceStatus, ReportStatus};
pub use self::webhook::{WebhookSettings, WebhookUrl};
use self::{publisher::Publisher, webhook::Delivery};

/// Background tasks, which end when this is dropped.
#[derive(Debug)]
pub(crate) struct FleetTasks {
    _tasks: Vec<AbortOnDropHandle<Infallible>>,
}

impl FleetTasks {
    /// Starts the tasks on the current runtime. Without sampling, there are no top talkers.
    pub(crate) fn start(
        webhook: Option<WebhookSettings>,
        control: &Control,
        view: &FleetView,
        is_sampling: bool,
    ) -> Self {
        let rounds = rounds::run(control.clone(), view.clone());
        let mut tasks = vec![spawn(log_events(control.clone())), spawn(rounds)];
        if control.is_shared() {
            tasks.push(spawn(Publisher::new(control.clone(), view.clone(), is_sampling).run()));
        }
        if let Some(webhook) = webhook {
            tasks.push(spawn(Delivery::new(control.clone(), webhook).run()));
        }
        Self { _tasks: tasks }
    }
}

fn spawn(task: impl Future<Output = Infallible> + Send + 'static) -> AbortOnDropHandle<Infallible> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

/// Time between two checks whether the control store responds.
const REACHABLE_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until the control store responds and permits its use, as the heartbeat finds out.
async fn reachable(control: &Control) {
    while !control.is_reachable() {
        sleep(REACHABLE_INTERVAL).await;
    }
}
