//! Metrics of ramps and of tuned limits.

use tollgate_control::{RampState, Switch};
use tollgate_metrics::{CounterFamily, GaugeFamily, Metric};

use super::tuning::TuneState;

/// Metrics of ramps and of tuned limits.
pub static METRICS: &[&dyn Metric] = &[&RAMPS, &TUNED, &TUNE_STEPS];

static TUNED: GaugeFamily<1> = GaugeFamily::new(
    "tollgate_tuned_rules",
    &["state"],
    "Rules with `tune`, by the state of their limit; on the instance that tunes them.",
    &[[TuneState::Held.name()], [TuneState::Observing.name()], [TuneState::Steady.name()]],
);

static TUNE_STEPS: CounterFamily<1> = CounterFamily::new(
    "tollgate_tune_steps_total",
    &["direction"],
    "Changes of limits by `tune`, made by this instance.",
);

static RAMPS: GaugeFamily<1> = GaugeFamily::new(
    "tollgate_ramps",
    &["state"],
    "Switches with a ramp, by the state of the ramp; on the instance that advances them.",
    &[[RampState::Running.name()], [RampState::Done.name()], [RampState::RolledBack.name()]],
);

/// Records the ramps of the switches.
pub(super) fn ramps(switches: &[Switch]) {
    for state in RampState::ALL {
        let ramps = switches.iter().filter_map(|switch| switch.ramp.as_ref());
        RAMPS.set([state.name()], ramps.filter(|ramp| ramp.state == state).count() as f64);
    }
}

/// Records the states of the rules that are tuned.
pub(super) fn tuned(states: &[TuneState]) {
    for state in TuneState::ALL {
        TUNED.set([state.name()], states.iter().filter(|other| **other == state).count() as f64);
    }
}

/// Counts a change of a tuned limit.
pub(super) fn tune_step(raises: bool) {
    TUNE_STEPS.increment([if raises { "up" } else { "down" }]);
}
