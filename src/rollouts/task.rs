//! The task of an instance: stores its report, and advances the fleet's ramps if it holds the lease.

use std::{convert::Infallible, mem, sync::Arc, time::Duration};

use tokio::{task::spawn_blocking, time::sleep};
use tollgate_control::{Control, ControlError, EventKind, OperatorEvent, RampState, ReportTopic, Switch};
use tollgate_core::clock::Clock;
use tollgate_limiter::ActiveRules;
use tollgate_runtime::backoff::Backoff;

use super::{comparisons::Comparisons, metrics, ramps::Ramps, report::RolloutReport, view::RolloutView};

/// Time between two rounds.
const INTERVAL: Duration = Duration::from_secs(2);

/// Longest time between two attempts while the store does not respond.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Name of the lease of the instance that advances ramps.
const LEASE: &str = "rollouts";

/// Lifetime of the lease: several rounds.
const LEASE_LIFETIME: Duration = Duration::from_secs(10);

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
pub(super) async fn run(control: Control, rules: Arc<ActiveRules>, view: RolloutView) -> Infallible {
    let (comparisons, ramps, was_reporting, is_holder) = Default::default();
    let mut task = Task { control, rules, view, comparisons, ramps, was_reporting, is_holder };
    let mut backoff = Backoff::new(INTERVAL, MAX_PAUSE);
    loop {
        // An error is counted, and the reconciler logs that the store does not respond.
        match task.round().await {
            Ok(()) => {
                backoff.reset();
                sleep(INTERVAL).await;
            }
            Err(_) => {
                task.resign();
                sleep(backoff.pause()).await;
            }
        }
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
        let switches = self.control.runtime().await?.switches;
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
        metrics::ramps(switches);
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
            metrics::ramps(&[]);
        }
    }
}

fn now_ms() -> u64 {
    Clock::System.now().as_micros() / 1_000
}
