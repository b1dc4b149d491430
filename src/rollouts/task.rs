//! The task of an instance: stores its report, and advances the fleet's ramps and tuned limits if it holds the lease.

use std::{convert::Infallible, mem, sync::Arc, time::Duration};

use tokio::{task::spawn_blocking, time::sleep};
use tollgate_control::{Control, ControlError, EventKind, EventPhase, OperatorEvent, RampState, Switch};
use tollgate_core::clock::Clock;
use tollgate_limiter::ActiveRules;
use tollgate_runtime::backoff::Backoff;

use super::{
    comparisons::Comparisons,
    metrics,
    ramps::Ramps,
    report::RolloutReport,
    tuning::{self, Situation, TuneState, TunedRule, Tuning},
    view::RolloutView,
};

/// Time between two rounds.
const INTERVAL: Duration = Duration::from_secs(2);

/// Longest time between two attempts while the store does not respond.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Name of the lease of the instance that advances ramps and tuned limits.
const LEASE: &str = "rollouts";

/// Lifetime of the lease: several rounds.
const LEASE_LIFETIME: Duration = Duration::from_secs(10);

struct Task {
    control: Control,
    rules: Arc<ActiveRules>,
    view: RolloutView,
    comparisons: Comparisons,
    ramps: Ramps,
    tuning: Tuning,
    /// Whether the last report had anything in it: one without follows it.
    was_reporting: bool,
    /// Whether this instance advanced ramps or tuned limits in the last round.
    is_holder: bool,
}

/// Reports, and advances ramps and tuned limits. Never returns.
pub(super) async fn run(control: Control, rules: Arc<ActiveRules>, view: RolloutView) -> Infallible {
    let (comparisons, ramps, tuning, was_reporting, is_holder) = Default::default();
    let mut task = Task { control, rules, view, comparisons, ramps, tuning, was_reporting, is_holder };
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
        let (report, tuned) = self.report().await;
        let is_reporting = !report.is_empty();
        if self.control.is_shared() && (is_reporting || mem::replace(&mut self.was_reporting, is_reporting)) {
            self.control.store_rollout_report(report.clone().into_text()).await?;
        }
        self.was_reporting = is_reporting;
        self.view.set_own(report);
        // A ramp sets the share of a rule.
        if !self.rules.lists().has_shares() && tuned.is_empty() {
            self.resign();
            return Ok(());
        }
        // Overrides and switches of another region are copied.
        if self.control.require_writable().is_err() || !self.control.hold_lease(LEASE, LEASE_LIFETIME).await?
        {
            self.resign();
            return Ok(());
        }
        self.is_holder = true;
        let switches = self.control.runtime().await?.switches;
        self.advance(&switches).await?;
        self.tune(tuned, &switches).await
    }

    /// The report of this instance, and the rules that are tuned.
    async fn report(&mut self) -> (RolloutReport, Vec<TunedRule>) {
        let (mut comparisons, rules) = (mem::take(&mut self.comparisons), Arc::clone(&self.rules));
        let control = self.control.clone();
        let made = spawn_blocking(move || {
            let now_ms = now_ms();
            let report = comparisons.report(&rules, now_ms);
            (comparisons, report, tuning::active(&rules, &control, now_ms))
        });
        // Fails only by a panic, which is logged; then comparisons begin anew.
        let (comparisons, report, tuned) = made.await.unwrap_or_default();
        self.comparisons = comparisons;
        (report, tuned)
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

    /// Makes the next step of each limit that is tuned.
    async fn tune(&mut self, tuned: Vec<TunedRule>, switches: &[Switch]) -> Result<(), ControlError> {
        self.tuning.retain(&tuned);
        let (view, instances) = (self.view.clone(), self.view.instances());
        // Evaluates distributions. Fails only by a panic, which is logged.
        let evaluated = spawn_blocking(move || {
            let limits = view.demand().limits(tuning::targets(&tuned), instances);
            (tuned, limits)
        });
        let (tuned, limits) = evaluated.await.unwrap_or_default();
        let mut states = Vec::new();
        for (rule, recommended) in tuned.iter().zip(limits) {
            let is_of = |switch: &Switch| switch.domain == rule.domain && switch.rule == rule.rule;
            let is_switched = switches.iter().any(is_of);
            let situation =
                Situation { present: self.control.override_at(rule.id()), is_switched, recommended };
            let now_ms = now_ms();
            match self.tuning.next(rule, situation, now_ms) {
                Ok(step) => {
                    let (reason, raises) = (step.entry.reason.clone(), step.raises);
                    if self.control.replace_override(step.known, step.entry, step.removes).await? {
                        self.tuning.stepped(rule, now_ms);
                        tracing::info!(domain = %rule.domain, rule = %rule.rule, %reason, "limit tuned");
                        if !step.removes {
                            metrics::tune_step(raises);
                        }
                    }
                    states.extend((!step.removes).then_some(TuneState::Steady));
                }
                Err(state) => states.extend(rule.tune.is_some().then_some(state)),
            }
        }
        metrics::tuned(&states);
        Ok(())
    }

    /// Raises the event of a ramp that was rolled back.
    fn notify(&self, switch: Switch, note: &str) {
        let rolled_back = switch.ramp.as_ref().filter(|ramp| ramp.state == RampState::RolledBack);
        if let Some(ramp) = rolled_back {
            let denied = ramp.denied_percent.map_or(0, |share| u64::from(share.hundredths()));
            self.control.raise_event(OperatorEvent {
                kind: EventKind::RampRolledBack,
                phase: EventPhase::Occurred,
                message: format!("Rule {} of domain {}: {note}.", switch.rule, switch.domain),
                domain: switch.domain,
                rule: Some(switch.rule),
                key: None,
                figures: vec![("denied_hundredths_of_percent", denied)],
            });
        }
    }

    /// Leaves the ramps and the tuned limits to another instance.
    fn resign(&mut self) {
        if mem::take(&mut self.is_holder) {
            self.ramps = Ramps::default();
            self.tuning = Tuning::default();
            metrics::ramps(&[]);
            metrics::tuned(&[]);
        }
    }
}

fn now_ms() -> u64 {
    Clock::System.now().as_micros() / 1_000
}
