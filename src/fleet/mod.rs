//! Traffic of all instances: events that operators are notified of.
//!
//! - `webhook` delivers each event once, from one instance of the fleet.

pub mod metrics;
mod webhook;

use std::convert::Infallible;

use tokio_util::task::AbortOnDropHandle;
use tollgate_control::{Control, log_events};

use self::webhook::Delivery;
pub use self::webhook::{WebhookSettings, WebhookUrl};

/// Settings of what instances share about their traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetSettings {
    /// Receiver of events, if there is one.
    pub webhook: Option<WebhookSettings>,
}

/// Background tasks, which end when this is dropped.
#[derive(Debug)]
pub(crate) struct FleetTasks {
    _tasks: Vec<AbortOnDropHandle<Infallible>>,
}

impl FleetTasks {
    /// Starts the tasks on the current runtime.
    pub(crate) fn start(settings: &FleetSettings, control: &Control) -> Self {
        let spawn = |task| AbortOnDropHandle::new(tokio::spawn(task));
        let mut tasks = vec![spawn(log_events(control.clone()))];
        if let Some(webhook) = settings.webhook.clone() {
            let delivery = Delivery::new(control.clone(), webhook);
            tasks.push(AbortOnDropHandle::new(tokio::spawn(delivery.run())));
        }
        Self { _tasks: tasks }
    }
}
