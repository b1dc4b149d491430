//! Series of one metric, by the values of their labels.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    slice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::RwLock;

use super::{
    declared::{Declared, MetricKind},
    exposition::Page,
};

/// Values of the labels of one series.
pub(super) type Values<const L: usize> = [&'static str; L];

/// Series that are made when they are first used. The metric gives the bits of a value their meaning.
pub(super) struct Family<const L: usize> {
    declared: Declared,
    /// Exported from the start.
    initial: &'static [Values<L>],
    series: RwLock<BTreeMap<Values<L>, Arc<AtomicU64>>>,
}

impl<const L: usize> Family<L> {
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
    pub(super) fn series(&self, values: Values<L>) -> Arc<AtomicU64> {
        if let Some(known) = self.series.read().get(&values) {
            return Arc::clone(known);
        }
        Arc::clone(self.series.write().entry(values).or_default())
    }

    /// Adds all series to a page, with the value that their bits have.
    pub(super) fn write<V: Display>(&self, page: &mut Page, value: impl Fn(u64) -> V) {
        let bits = |series: &Arc<AtomicU64>| series.load(Ordering::Relaxed);
        let all: Vec<_> = self.series.read().iter().map(|(values, series)| (*values, bits(series))).collect();
        if all.is_empty() {
            return;
        }
        page.begin(&self.declared);
        for (values, bits) in all {
            page.sample(&self.declared, &values, value(bits));
        }
    }

    pub(super) fn declared(&self) -> &[Declared] {
        slice::from_ref(&self.declared)
    }

    /// Makes the series that are exported from the start.
    pub(super) fn register_initial(&self) {
        for values in self.initial {
            self.series(*values);
        }
    }
}

impl<const L: usize> fmt::Debug for Family<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Family").field(&self.declared.name).finish()
    }
}
