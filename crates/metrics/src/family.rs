//! Series of one metric, by the values of their labels, kept by the exporter of Prometheus' format.

use std::{
    collections::BTreeMap,
    fmt, slice,
    sync::{Arc, LazyLock},
};

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder as _, SharedString};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use parking_lot::RwLock;

use super::declared::{Declared, MetricKind};

/// Values of the labels of one series.
pub(super) type Values<const L: usize> = [&'static str; L];

/// Counters and gauges of the process. It is not the recorder of the `metrics` macros: handles are kept beside the
/// declarations, so that no name is looked up when something is counted.
pub(super) static RECORDER: LazyLock<PrometheusRecorder> =
    LazyLock::new(|| PrometheusBuilder::new().build_recorder());

const METADATA: Metadata<'static> = Metadata::new("tollgate", Level::INFO, None);

/// A handle of a series.
pub(super) trait Handle: Clone + Sized {
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
pub(super) fn register<H: Handle>(declared: &Declared, values: &[&'static str]) -> H {
    let (name, help) = (KeyName::from_const_str(declared.name), SharedString::const_str(declared.help));
    match declared.kind {
        MetricKind::Counter => RECORDER.describe_counter(name, None, help),
        MetricKind::Gauge => RECORDER.describe_gauge(name, None, help),
        MetricKind::Histogram => {}
    }
    let labels = declared.labels.iter().zip(values).map(|(key, value)| Label::from_static_parts(key, value));
    H::register(&Key::from_parts(declared.name, labels.collect::<Vec<_>>()))
}

/// Series that are made when they are first used.
pub(super) struct Family<H, const L: usize> {
    declared: Declared,
    /// Exported from the start.
    initial: &'static [Values<L>],
    series: RwLock<BTreeMap<Values<L>, Arc<H>>>,
}

impl<H: Handle, const L: usize> Family<H, L> {
    pub(super) const fn new(
        kind: MetricKind,
        name: &'static str,
        labels: &'static [&'static str; L],
        help: &'static str,
        initial: &'static [Values<L>],
    ) -> Self {
        let declared = Declared { name, kind, labels, help };
        Self { declared, initial, series: RwLock::new(BTreeMap::new()) }
    }

    /// The series with these values.
    pub(super) fn series(&self, values: Values<L>) -> Arc<H> {
        if let Some(known) = self.series.read().get(&values) {
            return Arc::clone(known);
        }
        let register = || Arc::new(register(&self.declared, &values));
        Arc::clone(self.series.write().entry(values).or_insert_with(register))
    }

    pub(super) fn declared(&self) -> &[Declared] {
        slice::from_ref(&self.declared)
    }

    /// Registers the series that are exported from the start.
    pub(super) fn register_initial(&self) {
        for values in self.initial {
            self.series(*values);
        }
    }
}

impl<H, const L: usize> fmt::Debug for Family<H, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Family").field(&self.declared.name).finish()
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
