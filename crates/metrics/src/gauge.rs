//! Values that rise and fall.

use std::{
    fmt, slice,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::{
    declared::{Declared, MetricKind},
    exposition::{Metric, Page},
    family::{Family, Values},
};

/// A gauge without labels, exported once it is used.
pub struct Gauge {
    declared: Declared,
    is_exported: AtomicBool,
    /// The bits of the value.
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

    const fn declare(name: &'static str, help: &'static str, is_exported: bool) -> Self {
        let declared = Declared { name, kind: MetricKind::Gauge, labels: &[], help };
        Self { declared, is_exported: AtomicBool::new(is_exported), value: AtomicU64::new(0) }
    }

    /// Exports the gauge from now on, though it may be zero.
    pub fn export(&self) {
        self.is_exported.store(true, Ordering::Relaxed);
    }

    /// Sets the value; a count is exact up to 2^53.
    pub fn set(&self, value: f64) {
        self.value.store(value.to_bits(), Ordering::Relaxed);
        self.export();
    }

    /// Adds to the value, or takes from it.
    pub fn add(&self, change: f64) {
        add(&self.value, change);
        self.export();
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

    fn write(&self, page: &mut Page) {
        if self.is_exported.load(Ordering::Relaxed) {
            page.single(&self.declared, self.value());
        }
    }
}

/// Adds to a value that is stored as its bits.
#[allow(clippy::float_arithmetic)] // Exact for counts, which are all that is added.
fn add(value: &AtomicU64, change: f64) {
    let added = |bits| Some((f64::from_bits(bits) + change).to_bits());
    // It is always changed.
    let _ = value.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
}

/// A gauge with labels, whose series are exported once they are used.
#[derive(Debug)]
pub struct GaugeFamily<const L: usize>(Family<L>);

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
        self.0.series(values).store(value.to_bits(), Ordering::Relaxed);
    }

    /// Adds to a series, or takes from it.
    pub fn add(&self, values: Values<L>, change: f64) {
        add(&self.0.series(values), change);
    }
}

impl<const L: usize> Metric for GaugeFamily<L> {
    fn declared(&self) -> &[Declared] {
        self.0.declared()
    }

    fn register(&self) {
        self.0.register_initial();
    }

    fn write(&self, page: &mut Page) {
        self.0.write(page, f64::from_bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::exported;

    #[test]
    fn a_gauge_rises_and_falls() {
        let gauge = Gauge::new("gauge_test", "X.");
        gauge.register();
        assert!(exported(&gauge).is_empty());
        gauge.add(3.0);
        gauge.add(-1.0);
        assert_eq!(exported(&gauge), "# HELP gauge_test X.\n# TYPE gauge_test gauge\ngauge_test 2\n");
        assert_eq!(gauge.value(), 2.0);
        let family = GaugeFamily::new("gauges_test", &["a"], "Y.", &[["b"]]);
        family.register();
        family.set(["c"], 1.5);
        let expected = "# HELP gauges_test Y.\n# TYPE gauges_test gauge\ngauges_test{a=\"b\"} 0\ngauges_test{a=\"c\"} 1.5\n";
        assert_eq!(exported(&family), expected);
    }
}
