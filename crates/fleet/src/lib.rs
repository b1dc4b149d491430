//! Traffic of all instances: top talkers, history, gradual changes of limits, and the events that operators are notified of.
//!
//! ```text
//! every instance ──> report, totals ──> control store ──> view ──> API, dashboard
//!                                       the leader ──> rates, ramps, webhook
//! events ──> log in the control store ──> webhook
//! ```
//!
//! - Every two seconds, every instance makes a round: it stores its report, adds to the totals of intervals of the
//!   `history`, and takes or renews the lease. The instance that holds it leads: it reads the reports of all, exports the rates
//!   of the heaviest keys, and advances the ramps of `rollouts`.
//! - `view` reads the reports and totals of all instances on request.
//! - `webhook` delivers each event once, from the instance that leads.

// Counts, sizes and times far from their ends; those of users and of the wire are checked where they are read.
#![allow(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::float_arithmetic))]

pub mod history;
pub mod metrics;
pub mod rollouts;
mod report;
mod round;
mod view;
mod webhook;

use std::{convert::Infallible, time::Duration};

use tokio::{task::JoinSet, time::sleep};
use tollgate_control::{Control, log_events};

use self::{rollouts::demand, round::Rounds, webhook::Delivery};

pub use self::report::{FleetReports, InstanceStatus, ReportStatus};
pub use self::view::FleetView;
pub use self::webhook::{WebhookSettings, WebhookUrl};

/// Time between two checks whether the control store responds.
const REACHABLE_INTERVAL: Duration = Duration::from_millis(100);

/// Starts the tasks of the fleet on the current runtime.
pub fn start(webhook: Option<WebhookSettings>, control: &Control, view: &FleetView) -> JoinSet<Infallible> {
    let mut tasks = JoinSet::new();
    let rounds = Rounds::new(control.clone(), view.clone());
    if let Some(webhook) = webhook {
        let lease = rounds.lease().clone();
        tasks.spawn(Delivery::new(control.clone(), webhook, view.clone(), lease).run());
    }
    tasks.spawn(log_events(control.clone()));
    tasks.spawn(demand::collect(view.rules().clone(), view.demand().clone()));
    tasks.spawn(rounds.run());
    tasks
}

/// Waits until the control store responds and permits its use, as the heartbeat finds out.
async fn reachable(control: &Control) {
    while !control.is_reachable() {
        sleep(REACHABLE_INTERVAL).await;
    }
}
