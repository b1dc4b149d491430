//! Metrics of the connection to the control plane.

use tollgate_metrics::{Gauge, Metric};

/// Metrics of the control plane.
pub static METRICS: &[&dyn Metric] = &[&CONNECTED, &LAST_RESPONSE];

pub(super) static CONNECTED: Gauge =
    Gauge::new("tollgate_xds_connected", "1 while the control plane is connected, else 0.");

pub(super) static LAST_RESPONSE: Gauge = Gauge::new(
    "tollgate_xds_last_response_timestamp_seconds",
    "Time of the control plane's last response, in seconds since 1970.",
);
