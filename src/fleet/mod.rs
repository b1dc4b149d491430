//! Traffic of all instances: top talkers, history, and the events that operators are notified of.
//!
//! ```text
//! talkers, history ──> publisher ──> control store ──> view ──> API, dashboard
//!                                                       └──> rounds (one instance) ──> gauges, events ──> webhook
//! ```
//!
//! - `publisher` stores a report of this instance every two seconds, and adds to the totals of each interval.
//! - `view` reads the reports and totals of all instances.
//! - `rounds` evaluates them in one instance: rates of single keys, by `watch`.
//! - `webhook` delivers each event once, from one instance of the fleet.

pub mod history;
pub mod metrics;
mod publisher;
mod report;
mod rounds;
mod view;
mod watch;
mod webhook;

use std::{convert::Infallible, time::Duration};

use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tollgate_control::{Control, log_events};

pub(crate) use self::view::{FleetReports, FleetView, InstanceStatus};
pub use self::webhook::{WebhookSettings, WebhookUrl};
use self::{publisher::Publisher, rounds::Rounds, webhook::Delivery};

/// Settings of what instances share about their traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetSettings {
    /// Hits per second of one key above which an event is raised; 0 for none.
    pub key_rate_threshold: u64,
    /// Receiver of events, if there is one.
    pub webhook: Option<WebhookSettings>,
}

/// Background tasks, which end when this is dropped.
#[derive(Debug)]
pub(crate) struct FleetTasks {
    _tasks: Vec<AbortOnDropHandle<Infallible>>,
}

impl FleetTasks {
    /// Starts the tasks on the current runtime. Without sampling, there are no top talkers.
    pub(crate) fn start(
        settings: &FleetSettings,
        control: &Control,
        view: &FleetView,
        is_sampling: bool,
    ) -> Self {
        let rounds = Rounds::new(control.clone(), view.clone(), settings.key_rate_threshold);
        let mut tasks = vec![spawn(log_events(control.clone())), spawn(rounds.run())];
        if control.is_shared() {
            tasks.push(spawn(Publisher::new(control.clone(), view.clone(), is_sampling).run()));
        }
        if let Some(webhook) = settings.webhook.clone() {
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
