//! Values that rise and fall, kept by the exporter.

use std::{
    fmt, slice,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    declared::{Declared, MetricKind},
    exposition::Metric,
    family::{Family, Values, register},
};

/// A gauge without labels, exported once it is used.
pub struct Gauge {
    declared: Declared,
    is_initial: bool,
    handle: OnceLock<metrics::Gauge>,
    /// The bits of the value, to be read in this process.
    value: AtomicU64,
}

impl Gauge {
    /// Declares a gauge.
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        Self::declare(name, help, false)
    }

    /// Declares a gauge that is exported from the start, at zero.
    pub const fn at_zero(name: &'static str, help: &'static str) -> Self {
        Self::declare(name, help, true)
    }

    const fn declare(name: &'static str, help: &'static str, is_initial: bool) -> Self {
        let declared = Declared { name, kind: MetricKind::Gauge, labels: &[], help };
        Self { declared, is_initial, handle: OnceLock::new(), value: AtomicU64::new(0) }
    }

    fn handle(&self) -> &metrics::Gauge {
        self.handle.get_or_init(|| register(&self.declared, &[]))
    }

    /// Exports the gauge from now on, though it may be zero.
    pub fn export(&self) {
        self.add(0.0);
    }

    /// Sets the value; a count is exact up to 2^53.
    pub fn set(&self, value: f64) {
        self.value.store(value.to_bits(), Ordering::Relaxed);
        self.handle().set(value);
    }

    /// Adds to the value, or takes from it.
    #[allow(clippy::float_arithmetic)] // Exact for counts, which are all that is added.
    pub fn add(&self, change: f64) {
        let added = |bits| Some((f64::from_bits(bits) + change).to_bits());
        // It is always changed.
        let _ = self.value.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
        self.handle().increment(change);
    }

    /// The value now.
    pub fn value(&self) -> f64 {
        f64::from_bits(self.value.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gauge").field(&self.declared.name).finish()
    }
}

impl Metric for Gauge {
    fn declared(&self) -> &[Declared] {
        slice::from_ref(&self.declared)
    }

    fn register(&self) {
        if self.is_initial {
            self.handle();
        }
    }
}

/// A gauge with labels, whose series are exported once they are used.
#[derive(Debug)]
pub struct GaugeFamily<const L: usize>(Family<metrics::Gauge, L>);

impl<const L: usize> GaugeFamily<L> {
    /// Declares a gauge some of whose series are exported from the start, at zero.
    pub const fn new(
        name: &'static str,
        labels: &'static [&'static str; L],
        help: &'static str,
        series: &'static [Values<L>],
    ) -> Self {
        Self(Family::new(MetricKind::Gauge, name, labels, help, series))
    }

    /// Sets the value of a series.
    pub fn set(&self, values: Values<L>, value: f64) {
        self.0.series(values).set(value);
    }

    /// Adds to a series, or takes from it.
    pub fn add(&self, values: Values<L>, change: f64) {
        self.0.series(values).increment(change);
    }
}

impl<const L: usize> Metric for GaugeFamily<L> {
    fn declared(&self) -> &[Declared] {
        self.0.declared()
    }

    fn register(&self) {
        self.0.register_initial();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::exported;

    #[test]
    fn a_gauge_rises_and_falls() {
        let gauge = Gauge::new("gauge_test", "X.");
        gauge.register();
        assert!(exported("gauge_test").is_empty());
        gauge.add(3.0);
        gauge.add(-1.0);
        assert_eq!(exported("gauge_test"), ["gauge_test 2"]);
        assert_eq!(gauge.value(), 2.0);
        let family = GaugeFamily::new("gauges_test", &["a"], "Y.", &[["b"]]);
        family.register();
        family.set(["c"], 1.5);
        assert_eq!(exported("gauges_test"), ["gauges_test{a=\"b\"} 0", "gauges_test{a=\"c\"} 1.5"]);
    }
}
