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

mod ramps;
mod report;
mod view;

use std::{convert::Infallible, mem, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;
use tollgate_control::{Control, ControlError, EventKind, OperatorEvent, RampState, ReportTopic, Switch};
use tollgate_core::clock::{Clock, now_ms};
use tollgate_limiter::ActiveRules;
use tollgate_limiter::demand::{Demand, Recommendation};
use tollgate_limiter::talkers::{self, TakenDemand};
use tollgate_metrics::{GaugeFamily, Metric};
use tollgate_runtime::slices::{self, items_per_slice};

use self::ramps::Ramps;
use self::report::{Comparisons, RolloutReport};
use crate::{LEASE_LIFETIME, Pace};

pub use self::view::{CandidateView, KeyView, RolloutView};

/// Metrics of ramps.
pub static METRICS: &[&dyn Metric] = &[&RAMPS];

static RAMPS: GaugeFamily<1> = GaugeFamily::new(
    "tollgate_ramps",
    &["state"],
    "Switches with a ramp, by the state of the ramp; on the instance that advances them.",
    &[[RampState::Running.name()], [RampState::Done.name()], [RampState::RolledBack.name()]],
);

/// Name of the lease of the instance that advances ramps.
const LEASE: &str = "rollouts";

/// Starts the tasks of rollouts on the current runtime; each ends when its handle is dropped.
pub fn start(
    control: &Control,
    rules: &Arc<ActiveRules>,
    view: &RolloutView,
) -> [AbortOnDropHandle<Infallible>; 2] {
    let ramps = advance_ramps(control.clone(), Arc::clone(rules), view.clone());
    let demand = collect_demand(Arc::clone(rules), view.demand().clone());
    [tokio::spawn(ramps), tokio::spawn(demand)].map(AbortOnDropHandle::new)
}

/// State of the task that stores the report of this instance, and advances the fleet's ramps if it holds the lease.
struct Task {
    control: Control,
    rules: Arc<ActiveRules>,
    view: RolloutView,
    comparisons: Comparisons,
    ramps: Ramps,
    /// Whether the last report had anything in it: one without follows it.
    was_reporting: bool,
    /// Whether this instance advanced ramps in the last round.
    is_holder: bool,
}

/// Reports, and advances ramps. Never returns.
async fn advance_ramps(control: Control, rules: Arc<ActiveRules>, view: RolloutView) -> Infallible {
    let (comparisons, ramps) = Default::default();
    let mut task = Task { control, rules, view, comparisons, ramps, was_reporting: false, is_holder: false };
    let mut pace = Pace::new();
    loop {
        let round = task.round().await;
        if round.is_err() {
            task.resign();
        }
        pace.wait_after(round).await;
    }
}

impl Task {
    async fn round(&mut self) -> Result<(), ControlError> {
        let report = self.report().await;
        let is_reporting = !report.is_empty();
        if self.control.is_shared() && (is_reporting || mem::replace(&mut self.was_reporting, is_reporting)) {
            self.control.store_report(ReportTopic::Rollouts, report.clone().into_text()).await?;
        }
        self.was_reporting = is_reporting;
        self.view.set_own(report);
        // A ramp sets the share of a rule.
        if !self.rules.lists().has_shares() {
            self.resign();
            return Ok(());
        }
        // Switches of another region are copied.
        if self.control.require_writable().is_err() || !self.control.hold_lease(LEASE, LEASE_LIFETIME).await?
        {
            self.resign();
            return Ok(());
        }
        self.is_holder = true;
        let switches = self.control.runtime()?.switches;
        self.advance(&switches).await
    }

    /// The report of this instance.
    async fn report(&mut self) -> RolloutReport {
        let (mut comparisons, rules) = (mem::take(&mut self.comparisons), Arc::clone(&self.rules));
        let made = spawn_blocking(move || {
            let report = comparisons.report(&rules, now_ms());
            (comparisons, report)
        });
        // Fails only by a panic, which is logged; then comparisons begin anew.
        let (comparisons, report) = made.await.unwrap_or_default();
        self.comparisons = comparisons;
        report
    }

    async fn advance(&mut self, switches: &[Switch]) -> Result<(), ControlError> {
        record_ramps(switches);
        let reports = self.view.fresh_reports().await?;
        let reports = reports.iter().map(|(instance, report)| (&**instance, report));
        for (from, to) in self.ramps.round(reports, switches, now_ms()) {
            let note = to.ramp.as_ref().map(|ramp| ramp.note()).unwrap_or_default();
            if self.control.replace_switch(from, to.clone(), note.clone()).await? {
                tracing::info!(domain = %to.domain, rule = %to.rule, %note, "ramp changed");
                self.notify(to, &note);
            }
        }
        Ok(())
    }

    /// Raises the event of a ramp that was rolled back.
    fn notify(&self, switch: Switch, note: &str) {
        let rolled_back = switch.ramp.as_ref().filter(|ramp| ramp.state == RampState::RolledBack);
        if let Some(ramp) = rolled_back {
            let denied = ramp.denied_percent.map_or(0, |share| u64::from(share.hundredths()));
            self.control.raise_event(OperatorEvent {
                kind: EventKind::RampRolledBack,
                message: format!("Rule {} of domain {}: {note}.", switch.rule, switch.domain),
                domain: switch.domain,
                rule: Some(switch.rule),
                key: None,
                figures: vec![("denied_hundredths_of_percent", denied)],
                occasion: None,
            });
        }
    }

    /// Leaves the ramps to another instance.
    fn resign(&mut self) {
        if mem::take(&mut self.is_holder) {
            self.ramps = Ramps::default();
            record_ramps(&[]);
        }
    }
}

/// Records the ramps of the switches.
fn record_ramps(switches: &[Switch]) {
    for state in RampState::ALL {
        let ramps = switches.iter().filter_map(|switch| switch.ramp.as_ref());
        RAMPS.set([state.name()], ramps.filter(|ramp| ramp.state == state).count() as f64);
    }
}

/// Time between two rounds: the precision of windows.
const DEMAND_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of slices in a round, which take less than half of the time between two.
const MAX_SLICES: usize = 400;

/// Rounds between two removals of rules that are not active.
const ROUNDS_OF_REMOVAL: u32 = 60;

/// Demand of this instance; clones share it.
#[derive(Clone, Debug, Default)]
pub struct DemandView(Arc<Mutex<Demand>>);

impl DemandView {
    /// Limits for the active rules, where this many instances share the traffic evenly. Takes some milliseconds.
    pub fn recommendations(&self, rules: &ActiveRules, instances: u32) -> Vec<Recommendation> {
        let rules = rules.load();
        rules.map(|rules| self.0.lock().recommendations(&rules, instances)).unwrap_or_default()
    }

    /// Adds demand for the active rules, in slices.
    fn add(&self, mut taken: TakenDemand, rules: &ActiveRules) {
        let items = items_per_slice(taken.count_of_keys, MAX_SLICES);
        // The same for all: it determines the window.
        let now_s = Clock::System.now().as_micros() / 1_000_000;
        loop {
            let slice: Vec<_> = taken.by_ref().take(items).collect();
            if slice.is_empty() {
                return;
            }
            if let Some(active) = rules.active().get() {
                self.0.lock().add(active.rules, active.overridden, &slice, now_s);
            }
            slices::pause();
        }
    }
}

/// Collects demand. Never returns.
async fn collect_demand(rules: Arc<ActiveRules>, view: DemandView) -> Infallible {
    let mut ticks = interval(DEMAND_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut rounds = 0_u32;
    loop {
        ticks.tick().await;
        rounds = rounds.wrapping_add(1);
        let removes = rounds.is_multiple_of(ROUNDS_OF_REMOVAL);
        let (rules, view) = (Arc::clone(&rules), view.clone());
        // Matches thousands of keys. Fails only by a panic, which is logged.
        let _ = spawn_blocking(move || {
            view.add(talkers::take_demand(), &rules);
            if removes && let Some(active) = rules.active().get() {
                view.0.lock().retain(active.rules);
            }
        })
        .await;
    }
}
