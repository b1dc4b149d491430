//! Observed values beside the bands that they are compared with.

use super::{
    alarm::Active,
    anomaly::{Anomaly, AnomalyKind},
    band::Band,
};

/// Observed value, and the band that it is compared with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) observed: f64,
    pub(crate) low: f64,
    pub(crate) expected: f64,
    pub(crate) high: f64,
}

impl Reading {
    pub(crate) fn of(observed: f64, band: &Band) -> Self {
        Self { observed, low: band.low, expected: band.expected, high: band.high }
    }

    /// The anomaly that an alarm reports with this reading.
    pub(crate) const fn anomaly(&self, kind: AnomalyKind, active: &Active) -> Anomaly {
        let Self { observed, low, expected, high } = *self;
        Anomaly { kind, since: active.since, observed, expected, low, high }
    }
}
