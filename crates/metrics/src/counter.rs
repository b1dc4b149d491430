//! Counters of rare events.

use std::{
    slice,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::{
    exposition::{Declared, Kind, Metric, Page},
    family::{Family, Values},
};

/// A counter without labels, exported once it is used.
#[derive(Debug)]
pub struct Counter {
    declared: Declared,
    total: AtomicU64,
    is_exported: AtomicBool,
}

impl Counter {
    /// Declares a counter.
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        let declared = Declared { name, kind: Kind::Counter, labels: &[], help };
        Self { declared, total: AtomicU64::new(0), is_exported: AtomicBool::new(false) }
    }

    /// Exports the counter from now on, though it may be zero: `rate()` does not see a first event that makes the series.
    pub fn export(&self) {
        self.is_exported.store(true, Ordering::Relaxed);
    }

    /// Adds to the counter.
    pub fn add(&self, amount: u64) {
        self.total.fetch_add(amount, Ordering::Relaxed);
        self.export_if_new();
    }

    /// Sets a counter that is kept by other code; it never falls.
    pub fn raise_to(&self, total: u64) {
        self.total.fetch_max(total, Ordering::Relaxed);
        self.export_if_new();
    }

    // A plain read first: most calls change nothing.
    fn export_if_new(&self) {
        if !self.is_exported.load(Ordering::Relaxed) {
            self.export();
        }
    }
}

impl Metric for Counter {
    fn declared(&self) -> &[Declared] {
        slice::from_ref(&self.declared)
    }

    fn write(&self, page: &mut Page) {
        if self.is_exported.load(Ordering::Relaxed) {
            page.single(&self.declared, self.total.load(Ordering::Relaxed));
        }
    }
}

/// A counter with labels, whose series are exported once they are used.
#[derive(Debug)]
pub struct CounterFamily<const L: usize>(Family<L>);

impl<const L: usize> CounterFamily<L> {
    /// Declares a counter.
    pub const fn new(name: &'static str, labels: &'static [&'static str; L], help: &'static str) -> Self {
        Self::starting_with(name, labels, help, &[])
    }

    /// Declares a counter some of whose series are exported from the start, at zero: `rate()` does not see a first event
    /// that makes its series.
    pub const fn starting_with(
        name: &'static str,
        labels: &'static [&'static str; L],
        help: &'static str,
        series: &'static [Values<L>],
    ) -> Self {
        Self(Family::new(Kind::Counter, name, labels, help, series))
    }

    /// Exports a series from now on, though it may be zero.
    pub fn export(&self, values: Values<L>) {
        self.add(values, 0);
    }

    /// Adds one to a series.
    pub fn increment(&self, values: Values<L>) {
        self.add(values, 1);
    }

    /// Adds to a series.
    pub fn add(&self, values: Values<L>, amount: u64) {
        self.0.series(values).fetch_add(amount, Ordering::Relaxed);
    }
}

impl<const L: usize> Metric for CounterFamily<L> {
    fn declared(&self) -> &[Declared] {
        self.0.declared()
    }

    fn write(&self, page: &mut Page) {
        // Exact up to 2^53.
        self.0.write(page, |total| total as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metric: &dyn Metric) -> Vec<String> {
        let mut page = Page::default();
        metric.write(&mut page);
        page.into_text().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_counter_is_exported_once_it_is_used() {
        let counter = Counter::new("x_total", "X.");
        assert!(text(&counter).is_empty());
        counter.export();
        assert_eq!(text(&counter)[2], "x_total 0");
        counter.add(2);
        counter.raise_to(7);
        counter.raise_to(5);
        assert_eq!(text(&counter)[2], "x_total 7");
    }

    #[test]
    fn a_family_exports_its_first_series_and_those_that_are_used() {
        let family = CounterFamily::starting_with("x_total", &["a"], "X.", &[["one"], ["two"]]);
        family.increment(["two"]);
        family.export(["three"]);
        let expected = ["x_total{a=\"one\"} 0", "x_total{a=\"three\"} 0", "x_total{a=\"two\"} 1"];
        assert_eq!(text(&family)[2..], expected);
        assert!(text(&CounterFamily::new("y_total", &["a"], "Y.")).is_empty());
    }
}
