//! Gradual changes of limits over the whole fleet: comparisons with candidates, ramps, and recommended limits.
//!
//! Every instance reports hits by side and by outcome; the instance that leads advances ramps by the reports of all. While the
//! control store does not respond, no ramp advances. Limits are recommended from the demand of keys, which each instance
//! observes alone.

pub(super) mod demand;
mod ramps;
mod report;
mod view;

use std::mem;

use tollgate_control::{Control, ControlError, EventKind, OperatorEvent, RampState, Switch};
use tollgate_core::clock::now_ms;
use tollgate_limiter::ActiveRules;
use tollgate_metrics::{GaugeFamily, Metric};

use self::ramps::Ramps;

pub use self::demand::DemandView;
pub(super) use self::report::{Comparisons, RolloutReport, json_bytes};
pub(super) use self::view::merged;
pub use self::view::{CandidateView, KeyView};

/// Metrics of ramps.
pub static METRICS: &[&dyn Metric] = &[&RAMPS];

static RAMPS: GaugeFamily<1> = GaugeFamily::new(
    "tollgate_ramps",
    &["state"],
    "Switches with a ramp, by the state of the ramp; on the instance that advances them.",
    &[[RampState::Running.name()], [RampState::Done.name()], [RampState::RolledBack.name()]],
);

/// Advances the ramps of the fleet while this instance leads.
#[derive(Debug, Default)]
pub(super) struct RampKeeper {
    ramps: Ramps,
    /// Whether this instance advanced ramps in the last round.
    is_acting: bool,
}

impl RampKeeper {
    /// Advances ramps by the reports of the instances, each with its id.
    pub(super) async fn round(
        &mut self,
        control: &Control,
        rules: &ActiveRules,
        reports: &[(String, RolloutReport)],
    ) -> Result<(), ControlError> {
        // A ramp sets the share of a rule; switches of another region are copied.
        if !rules.lists().has_shares() || control.require_writable().is_err() {
            self.resign();
            return Ok(());
        }
        self.is_acting = true;
        let switches = control.runtime()?.switches;
        record_ramps(&switches);
        for (from, to) in self.ramps.round(reports, &switches, now_ms()) {
            let note = to.ramp.as_ref().map(|ramp| ramp.note()).unwrap_or_default();
            if control.replace_switch(from, to.clone(), note.clone()).await? {
                tracing::info!(domain = %to.domain, rule = %to.rule, %note, "ramp changed");
                notify(control, to, &note);
            }
        }
        Ok(())
    }

    /// Leaves the ramps to another instance.
    pub(super) fn resign(&mut self) {
        if mem::take(&mut self.is_acting) {
            self.ramps = Ramps::default();
            record_ramps(&[]);
        }
    }
}

/// Raises the event of a ramp that was rolled back.
fn notify(control: &Control, switch: Switch, note: &str) {
    let rolled_back = switch.ramp.as_ref().filter(|ramp| ramp.state == RampState::RolledBack);
    if let Some(ramp) = rolled_back {
        let denied = ramp.denied_percent.map_or(0, |share| u64::from(share.hundredths()));
        control.raise_event(OperatorEvent {
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

/// Records the ramps of the switches.
fn record_ramps(switches: &[Switch]) {
    for state in RampState::ALL {
        let ramps = switches.iter().filter_map(|switch| switch.ramp.as_ref());
        RAMPS.set([state.name()], ramps.filter(|ramp| ramp.state == state).count() as f64);
    }
}
