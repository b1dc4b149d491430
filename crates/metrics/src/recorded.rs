//! Counters and gauges of rare events.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::slice;

use parking_lot::Mutex;

use crate::exposition::{Declared, Metric, Page};

/// Values of the labels of one series.
type Values<const L: usize> = [&'static str; L];

/// A metric with labels, whose series are exported once they are used.
#[derive(Debug)]
pub struct Family<V, const L: usize> {
    declared: Declared,
    /// Exported from the start, at zero.
    initial: &'static [Values<L>],
    series: Mutex<BTreeMap<Values<L>, V>>,
}

/// A counter with labels, whose series are exported once they are used.
pub type CounterFamily<const L: usize> = Family<u64, L>;

/// A gauge with labels, whose series are exported once they are used.
pub type GaugeFamily<const L: usize> = Family<f64, L>;

impl<V: Default, const L: usize> Family<V, L> {
    const fn of(declared: Declared, initial: &'static [Values<L>]) -> Self {
        Self { declared, initial, series: Mutex::new(BTreeMap::new()) }
    }

    /// Changes the value of a series, which is exported from now on.
    fn change(&self, values: Values<L>, change: impl FnOnce(&mut V)) {
        change(self.series.lock().entry(values).or_default());
    }
}

impl<V: Debug + Default + Display + Send, const L: usize> Metric for Family<V, L> {
    fn declared(&self) -> &[Declared] {
        slice::from_ref(&self.declared)
    }

    fn register(&self) {
        self.initial.iter().for_each(|values| self.change(*values, |_| {}));
    }

    fn write(&self, page: &mut Page) {
        let series = self.series.lock();
        if !series.is_empty() {
            page.begin(&self.declared);
        }
        series.iter().for_each(|(values, value)| page.sample(&self.declared, values, value));
    }
}

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
        Self::of(Declared::counter(name, labels, help), series)
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
        self.change(values, |total| *total = total.saturating_add(amount));
    }
}

impl<const L: usize> GaugeFamily<L> {
    /// Declares a gauge some of whose series are exported from the start, at zero.
    pub const fn new(
        name: &'static str,
        labels: &'static [&'static str; L],
        help: &'static str,
        series: &'static [Values<L>],
    ) -> Self {
        Self::of(Declared::gauge(name, labels, help), series)
    }

    /// Sets the value of a series.
    pub fn set(&self, values: Values<L>, value: f64) {
        self.change(values, |known| *known = value);
    }

    /// Adds to a series, or takes from it.
    #[allow(clippy::float_arithmetic)] // Counts up to 2^53.
    pub fn add(&self, values: Values<L>, change: f64) {
        self.change(values, |value| *value += change);
    }
}

/// A metric without labels, exported once it is used.
#[derive(Debug)]
pub struct Single<V>(Family<V, 0>);

/// A counter without labels, exported once it is used.
pub type Counter = Single<u64>;

/// A gauge without labels, exported once it is used.
pub type Gauge = Single<f64>;

impl<V: Default> Single<V> {
    /// Exports the metric from now on, though it may be zero: `rate()` does not see a first event that makes the series.
    pub fn export(&self) {
        self.0.change([], |_| {});
    }
}

impl<V: Debug + Default + Display + Send> Metric for Single<V> {
    fn declared(&self) -> &[Declared] {
        self.0.declared()
    }

    fn register(&self) {
        self.0.register();
    }

    fn write(&self, page: &mut Page) {
        self.0.write(page);
    }
}

impl Counter {
    /// Declares a counter.
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        Self(Family::of(Declared::counter(name, &[], help), &[]))
    }

    /// Adds to the counter.
    pub fn add(&self, amount: u64) {
        self.0.add([], amount);
    }

    /// Sets a counter that is kept by other code; it never falls.
    pub fn raise_to(&self, total: u64) {
        self.0.change([], |known| *known = total.max(*known));
    }
}

impl Gauge {
    /// Declares a gauge.
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        Self(Family::of(Declared::gauge(name, &[], help), &[]))
    }

    /// Declares a gauge that is exported from the start, at zero.
    pub const fn at_zero(name: &'static str, help: &'static str) -> Self {
        Self(Family::of(Declared::gauge(name, &[], help), &[[]]))
    }

    /// Sets the value; a count is exact up to 2^53.
    pub fn set(&self, value: f64) {
        self.0.set([], value);
    }

    /// Adds to the value, or takes from it.
    pub fn add(&self, change: f64) {
        self.0.add([], change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of a page with a metric.
    fn lines(metric: &dyn Metric) -> Vec<String> {
        let mut page = Page::default();
        metric.write(&mut page);
        page.into_text().lines().map(str::to_owned).collect()
    }

    /// The samples of a metric.
    fn exported(metric: &dyn Metric) -> Vec<String> {
        lines(metric).into_iter().filter(|line| !line.starts_with('#')).collect()
    }

    #[test]
    fn a_counter_is_exported_once_it_is_used() {
        let counter = Counter::new("counter_test_total", "X.");
        assert!(lines(&counter).is_empty());
        counter.export();
        assert_eq!(exported(&counter), ["counter_test_total 0"]);
        counter.add(2);
        counter.raise_to(7);
        counter.raise_to(5);
        assert_eq!(exported(&counter), ["counter_test_total 7"]);
        assert_eq!(lines(&counter)[0], "# HELP counter_test_total X.");
    }

    #[test]
    fn a_family_exports_its_first_series_and_those_that_are_used() {
        let family = CounterFamily::starting_with("family_test_total", &["a"], "X.", &[["one"], ["two"]]);
        family.register();
        family.increment(["two"]);
        family.export(["three"]);
        let expected = [
            "family_test_total{a=\"one\"} 0",
            "family_test_total{a=\"three\"} 0",
            "family_test_total{a=\"two\"} 1",
        ];
        assert_eq!(exported(&family), expected);
        let unused = CounterFamily::new("unused_test_total", &["a"], "Y.");
        unused.register();
        assert!(lines(&unused).is_empty());
    }

    #[test]
    fn a_gauge_rises_and_falls() {
        let gauge = Gauge::new("gauge_test", "X.");
        gauge.register();
        assert!(lines(&gauge).is_empty());
        gauge.add(3.0);
        gauge.add(-1.0);
        assert_eq!(exported(&gauge), ["gauge_test 2"]);
        let first = Gauge::at_zero("first_test", "X.");
        first.register();
        assert_eq!(exported(&first), ["first_test 0"]);
        let family = GaugeFamily::new("gauges_test", &["a"], "Y.", &[["b"]]);
        family.register();
        family.set(["c"], 1.5);
        assert_eq!(exported(&family), ["gauges_test{a=\"b\"} 0", "gauges_test{a=\"c\"} 1.5"]);
    }
}
