//! Tasks beside the ports and the workers.

use std::convert::Infallible;

use tokio_util::task::AbortOnDropHandle;

use super::instance::Instance;
use crate::{
    fleet::{FleetTasks, FleetView},
    rollouts::{RolloutTasks, RolloutView},
    settings::Settings,
};

/// Running tasks; aborted on drop.
#[derive(Debug)]
pub(super) struct Tasks {
    /// Figures and events of the fleet.
    _fleet: FleetTasks,
    /// Reports and ramps of rollouts.
    _rollouts: RolloutTasks,
    /// Tasks of the limiters and of their stores.
    of_limiters: Vec<AbortOnDropHandle<Infallible>>,
}

/// Results of the tasks, for the admin API.
pub(super) struct TaskViews {
    pub(super) fleet: FleetView,
    pub(super) rollouts: RolloutView,
}

impl Tasks {
    /// Starts the tasks of every instance on the current runtime.
    pub(super) fn start(settings: &Settings, instance: &Instance) -> (Self, TaskViews) {
        let Instance { control, rules, .. } = instance;
        let fleet = FleetView::new(control.clone(), settings.top_talkers);
        let (rollout_tasks, rollouts) = RolloutTasks::start(control, rules);
        let fleet_tasks = FleetTasks::start(settings.webhook.clone(), control, &fleet, settings.top_talkers);
        let tasks = Self { _fleet: fleet_tasks, _rollouts: rollout_tasks, of_limiters: Vec::new() };
        (tasks, TaskViews { fleet, rollouts })
    }

    /// Adds tasks of the limiters.
    pub(super) fn add(&mut self, tasks: impl IntoIterator<Item = AbortOnDropHandle<Infallible>>) {
        self.of_limiters.extend(tasks);
    }
}
