//! Metrics of the fleet.

use tollgate_metrics::{CounterFamily, Metric};

/// Metrics of the fleet.
pub static METRICS: &[&dyn Metric] = &[&DELIVERIES];

static DELIVERIES: CounterFamily<1> = CounterFamily::starting_with(
    "tollgate_webhook_attempts_total",
    &["result"],
    "Attempts of this instance to deliver an event to the webhook.",
    &[["delivered"], ["failed"], ["refused"], ["expired"]],
);

/// Counts an attempt by its result.
pub(super) fn webhook_attempt(result: &'static str) {
    DELIVERIES.increment([result]);
}
