//! Values that rise and fall.

use std::{
    slice,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::{
    exposition::{Declared, Kind, Metric, Page},
    family::{Family, Values},
};

/// A gauge without labels, exported once it is used.
#[derive(Debug)]
pub struct Gauge {
    declared: Declared,
    /// The bits of a float.
    value: AtomicU64,
    is_exported: AtomicBool,
}

impl Gauge {
    /// Declares a gauge.
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        let declared = Declared { name, kind: Kind::Gauge, labels: &[], help };
        Self { declared, value: AtomicU64::new(0), is_exported: AtomicBool::new(false) }
    }

    /// Declares a gauge that is exported from the start, at zero.
    pub const fn at_zero(name: &'static str, help: &'static str) -> Self {
        Self { is_exported: AtomicBool::new(true), ..Self::new(name, help) }
    }

    /// Exports the gauge from now on, though it may be zero.
    pub fn export(&self) {
        self.add(0.0);
    }

    /// Sets the value; a count is exact up to 2^53.
    pub fn set(&self, value: f64) {
        self.value.store(value.to_bits(), Ordering::Relaxed);
        self.is_exported.store(true, Ordering::Relaxed);
    }

    /// Adds to the value, or takes from it.
    pub fn add(&self, change: f64) {
        add(&self.value, change);
        self.is_exported.store(true, Ordering::Relaxed);
    }

    /// The value now.
    pub fn value(&self) -> f64 {
        f64::from_bits(self.value.load(Ordering::Relaxed))
    }
}

#[allow(clippy::float_arithmetic)] // Exact for counts, which are all that is added.
fn add(value: &AtomicU64, change: f64) {
    let added = |bits| Some((f64::from_bits(bits) + change).to_bits());
    // It is always changed.
    let _ = value.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
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
        Self(Family::new(Kind::Gauge, name, labels, help, series))
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

    fn write(&self, page: &mut Page) {
        self.0.write(page, f64::from_bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_rises_and_falls() {
        let gauge = Gauge::new("x", "X.");
        let mut page = Page::default();
        gauge.write(&mut page);
        assert_eq!(page.into_text(), "");
        gauge.add(3.0);
        gauge.add(-1.0);
        let family = GaugeFamily::new("y", &["a"], "Y.", &[["b"]]);
        family.set(["c"], 1.5);
        let mut page = Page::default();
        gauge.write(&mut page);
        family.write(&mut page);
        let text = page.into_text();
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples, ["x 2", "y{a=\"b\"} 0", "y{a=\"c\"} 1.5"]);
    }
}
