//! Series of one metric, by the values of their labels.

use std::{
    collections::BTreeMap,
    slice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::RwLock;

use super::exposition::{Declared, Kind, Page};

/// Values of the labels of one series.
pub(super) type Values<const L: usize> = [&'static str; L];

/// Series that are made when they are first used.
#[derive(Debug)]
pub(super) struct Family<const L: usize> {
    declared: Declared,
    /// Exported from the start.
    initial: &'static [Values<L>],
    series: RwLock<BTreeMap<Values<L>, Arc<AtomicU64>>>,
}

impl<const L: usize> Family<L> {
    pub(super) const fn new(
        kind: Kind,
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

    pub(super) fn declared(&self) -> &[Declared] {
        slice::from_ref(&self.declared)
    }

    /// Adds the metric to a page, unless it has no series; `value` reads a series.
    pub(super) fn write(&self, page: &mut Page, value: fn(u64) -> f64) {
        let mut series: BTreeMap<_, u64> = self.initial.iter().map(|values| (*values, 0)).collect();
        series.extend(
            self.series.read().iter().map(|(values, series)| (*values, series.load(Ordering::Relaxed))),
        );
        if !series.is_empty() {
            page.begin(&self.declared);
        }
        for (values, series) in series {
            page.sample(&self.declared, &values, value(series));
        }
    }
}
