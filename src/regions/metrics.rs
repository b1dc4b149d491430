//! Metrics of regions.

use tollgate_metrics::{Counter, Gauge, Metric};

/// Metrics of regions.
pub static METRICS: &[&dyn Metric] = &[&GENERATION, &UNFINISHED, &RELOAD_FAILURES];

static GENERATION: Gauge = Gauge::new("tollgate_region_generation", "Generation of the active region table.");

static UNFINISHED: Gauge = Gauge::new(
    "tollgate_region_changes_unfinished",
    "Changes of weights that other regions have not announced, so that raised shares do not apply yet.",
);

static RELOAD_FAILURES: Counter = Counter::new(
    "tollgate_region_table_reload_failures_total",
    "Changes of the region table's file that were refused.",
);

/// Records the active table.
pub(super) fn table(generation: u64, unfinished: usize) {
    RELOAD_FAILURES.export();
    GENERATION.set(generation as f64);
    UNFINISHED.set(unfinished as f64);
}

/// Counts a refused change of the table.
pub(super) fn reload_failed() {
    RELOAD_FAILURES.add(1);
}
