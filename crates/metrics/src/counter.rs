//! Counters of rare events.

use std::{
    fmt, slice,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    declared::{Declared, MetricKind},
    exposition::{Metric, Page},
    family::{Family, Values},
};

/// A counter without labels, exported once it is used.
pub struct Counter {
    declared: Declared,
    /// The total, once the counter is exported.
    total: OnceLock<AtomicU64>,
}

impl Counter {
    /// Declares a counter.
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        let declared = Declared { name, kind: MetricKind::Counter, labels: &[], help };
        Self { declared, total: OnceLock::new() }
    }

    fn total(&self) -> &AtomicU64 {
        self.total.get_or_init(AtomicU64::default)
    }

    /// Exports the counter from now on, though it may be zero: `rate()` does not see a first event that makes the series.
    pub fn export(&self) {
        self.add(0);
    }

    /// Adds to the counter.
    pub fn add(&self, amount: u64) {
        self.total().fetch_add(amount, Ordering::Relaxed);
    }

    /// Sets a counter that is kept by other code; it never falls.
    pub fn raise_to(&self, total: u64) {
        self.total().fetch_max(total, Ordering::Relaxed);
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.declared.name).finish()
    }
}

impl Metric for Counter {
    fn declared(&self) -> &[Declared] {
        slice::from_ref(&self.declared)
    }

    fn write(&self, page: &mut Page) {
        if let Some(total) = self.total.get() {
            page.single(&self.declared, total.load(Ordering::Relaxed));
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
        Self(Family::new(MetricKind::Counter, name, labels, help, series))
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

    fn register(&self) {
        self.0.register_initial();
    }

    fn write(&self, page: &mut Page) {
        self.0.write(page, |total| total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::exported;

    #[test]
    fn a_counter_is_exported_once_it_is_used() {
        let counter = Counter::new("counter_test_total", "X.");
        assert!(exported(&counter).is_empty());
        counter.export();
        let shown = |total: u64| {
            format!(
                "# HELP counter_test_total X.\n# TYPE counter_test_total counter\ncounter_test_total {total}\n"
            )
        };
        assert_eq!(exported(&counter), shown(0));
        counter.add(2);
        counter.raise_to(7);
        counter.raise_to(5);
        assert_eq!(exported(&counter), shown(7));
    }

    #[test]
    fn a_family_exports_its_first_series_and_those_that_are_used() {
        let family = CounterFamily::starting_with("family_test_total", &["a"], "X.", &[["one"], ["two"]]);
        family.register();
        family.increment(["two"]);
        family.export(["three"]);
        let expected = "# HELP family_test_total X.\n# TYPE family_test_total counter\n\
                        family_test_total{a=\"one\"} 0\nfamily_test_total{a=\"three\"} 0\nfamily_test_total{a=\"two\"} 1\n";
        assert_eq!(exported(&family), expected);
        let unused = CounterFamily::new("unused_test_total", &["a"], "Y.");
        unused.register();
        assert!(exported(&unused).is_empty());
    }
}
