//! Metrics of ramps.

use tollgate_control::{RampState, Switch};
use tollgate_metrics::{GaugeFamily, Metric};

/// Metrics of ramps.
pub static METRICS: &[&dyn Metric] = &[&RAMPS];

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
