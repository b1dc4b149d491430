//! Counters and gauges of rare events, kept by the exporter of Prometheus' format.

use std::sync::{Arc, LazyLock, OnceLock};
use std::{collections::BTreeMap, fmt, slice};

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder as _, SharedString};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use parking_lot::RwLock;

use crate::exposition::{Declared, Metric, MetricKind};

/// A metric without labels, exported once it is used.
#[derive(Debug)]
pub struct Single<H> {
    declared: Declared,
    /// Whether it is exported from the start, at zero.
    is_initial: bool,
    handle: OnceLock<H>,
}

/// A counter without labels, exported once it is used.
pub type Counter = Single<metrics::Counter>;

/// A gauge without labels, exported once it is used.
pub type Gauge = Single<metrics::Gauge>;

impl<H: Handle> Single<H> {
    /// Exports the metric from now on, though it may be zero: `rate()` does not see a first event that makes the series.
    pub fn export(&self) {
        self.handle();
    }

    fn handle(&self) -> &H {
        self.handle.get_or_init(|| register(&self.declared, &[]))
    }
}

impl<H: Handle> Metric for Single<H> {
    fn declared(&self) -> &[Declared] {
        slice::from_ref(&self.declared)
    }

    fn register(&self) {
        if self.is_initial {
            self.export();
        }
    }
}

impl Counter {
    /// Declares a counter.
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        Self { declared: Declared::counter(name, &[], help), is_initial: false, handle: OnceLock::new() }
    }

    /// Adds to the counter.
    pub fn add(&self, amount: u64) {
        self.handle().increment(amount);
    }

    /// Sets a counter that is kept by other code; it never falls.
    pub fn raise_to(&self, total: u64) {
        self.handle().absolute(total);
    }
}

impl Gauge {
    /// Declares a gauge.
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        Self { declared: Declared::gauge(name, &[], help), is_initial: false, handle: OnceLock::new() }
    }

    /// Declares a gauge that is exported from the start, at zero.
    pub const fn at_zero(name: &'static str, help: &'static str) -> Self {
        Self { declared: Declared::gauge(name, &[], help), is_initial: true, handle: OnceLock::new() }
    }

    /// Sets the value; a count is exact up to 2^53.
    pub fn set(&self, value: f64) {
        self.handle().set(value);
    }

    /// Adds to the value, or takes from it.
    pub fn add(&self, change: f64) {
        self.handle().increment(change);
    }
}

/// Values of the labels of one series.
pub(super) type Values<const L: usize> = [&'static str; L];

/// Counters and gauges of the process. It is not the recorder of the `metrics` macros: handles are kept beside the
/// declarations, so that no name is looked up when something is counted.
pub(super) static RECORDER: LazyLock<PrometheusRecorder> =
    LazyLock::new(|| PrometheusBuilder::new().build_recorder());

const METADATA: Metadata<'static> = Metadata::new("tollgate", Level::INFO, None);

/// A handle of a series.
pub trait Handle: fmt::Debug + Send + Sync + Sized {
    /// Registers the series `key`.
    fn register(key: &Key) -> Self;
}

impl Handle for metrics::Counter {
    fn register(key: &Key) -> Self {
        RECORDER.register_counter(key, &METADATA)
    }
}

impl Handle for metrics::Gauge {
    fn register(key: &Key) -> Self {
        RECORDER.register_gauge(key, &METADATA)
    }
}

/// Registers the series of `declared` whose labels have these values.
fn register<H: Handle>(declared: &Declared, values: &[&'static str]) -> H {
    let (name, help) = (KeyName::from_const_str(declared.name), SharedString::const_str(declared.help));
    match declared.kind {
        MetricKind::Counter => RECORDER.describe_counter(name, None, help),
        MetricKind::Gauge => RECORDER.describe_gauge(name, None, help),
        MetricKind::Histogram => {}
    }
    let labels = declared.labels.iter().zip(values).map(|(key, value)| Label::from_static_parts(key, value));
    H::register(&Key::from_parts(declared.name, labels.collect::<Vec<_>>()))
}

/// A metric with labels, whose series are exported once they are used.
#[derive(Debug)]
pub struct Family<H, const L: usize> {
    declared: Declared,
    /// Exported from the start.
    initial: &'static [Values<L>],
    series: RwLock<BTreeMap<Values<L>, Arc<H>>>,
}

/// A counter with labels, whose series are exported once they are used.
pub type CounterFamily<const L: usize> = Family<metrics::Counter, L>;

/// A gauge with labels, whose series are exported once they are used.
pub type GaugeFamily<const L: usize> = Family<metrics::Gauge, L>;

impl<H: Handle, const L: usize> Family<H, L> {
    /// The series with these values.
    fn series(&self, values: Values<L>) -> Arc<H> {
        if let Some(known) = self.series.read().get(&values) {
            return Arc::clone(known);
        }
        let register = || Arc::new(register(&self.declared, &values));
        Arc::clone(self.series.write().entry(values).or_insert_with(register))
    }
}

impl<H: Handle, const L: usize> Metric for Family<H, L> {
    fn declared(&self) -> &[Declared] {
        slice::from_ref(&self.declared)
    }

    fn register(&self) {
        for values in self.initial {
            self.series(*values);
        }
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
        let declared = Declared::counter(name, labels, help);
        Self { declared, initial: series, series: RwLock::new(BTreeMap::new()) }
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
        self.series(values).increment(amount);
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
        let declared = Declared::gauge(name, labels, help);
        Self { declared, initial: series, series: RwLock::new(BTreeMap::new()) }
    }

    /// Sets the value of a series.
    pub fn set(&self, values: Values<L>, value: f64) {
        self.series(values).set(value);
    }

    /// Adds to a series, or takes from it.
    pub fn add(&self, values: Values<L>, change: f64) {
        self.series(values).increment(change);
    }
}

#[cfg(test)]
pub(super) fn exported(name: &str) -> Vec<String> {
    let page = RECORDER.handle().render();
    let is_of = |line: &&str| line.starts_with(name);
    let mut lines: Vec<String> = page.lines().filter(is_of).map(str::to_owned).collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_exported_once_it_is_used() {
        let counter = Counter::new("counter_test_total", "X.");
        assert!(exported("counter_test_total").is_empty());
        counter.export();
        assert_eq!(exported("counter_test_total"), ["counter_test_total 0"]);
        counter.add(2);
        counter.raise_to(7);
        counter.raise_to(5);
        assert_eq!(exported("counter_test_total"), ["counter_test_total 7"]);
        assert_eq!(exported("# HELP counter_test_total"), ["# HELP counter_test_total X."]);
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
        assert_eq!(exported("family_test_total"), expected);
        CounterFamily::new("unused_test_total", &["a"], "Y.").register();
        assert!(exported("unused_test_total").is_empty());
    }

    #[test]
    fn a_gauge_rises_and_falls() {
        let gauge = Gauge::new("gauge_test", "X.");
        gauge.register();
        assert!(exported("gauge_test").is_empty());
        gauge.add(3.0);
        gauge.add(-1.0);
        assert_eq!(exported("gauge_test"), ["gauge_test 2"]);
        let family = GaugeFamily::new("gauges_test", &["a"], "Y.", &[["b"]]);
        family.register();
        family.set(["c"], 1.5);
        assert_eq!(exported("gauges_test"), ["gauges_test{a=\"b\"} 0", "gauges_test{a=\"c\"} 1.5"]);
    }
}
