//! Metrics of anomalies, exported by the instance that evaluates the fleet's traffic.

use parking_lot::Mutex;
use tollgate_anomaly::{AnomalyKind, SeriesKey, SeriesStatus};
use tollgate_metrics::{Computed, CounterFamily, GaugeFamily, Metric};

/// Label of a whole domain.
pub(super) const ALL_RULES: &str = "(all)";

/// Label of a series that is always zero.
const NONE: &str = "(none)";

/// Metrics of anomalies.
pub static METRICS: &[&dyn Metric] = &[&ACTIVE, &BEGUN, &EVALUATIONS, &SERIES];

static ACTIVE: Computed<1> = Computed::gauge(
    "tollgate_anomaly_active",
    &["domain", "rule", "kind"],
    "1 while the traffic of a rule or a domain is unusual; for the whole fleet, on the instance that evaluates it.",
    |[declared], page| {
        let all = ALL.lock();
        page.begin(declared);
        // Always there, so that the name is known before a first anomaly.
        page.sample(declared, &[NONE, NONE, AnomalyKind::RateHigh.name()], 0);
        for (key, kind) in &*all {
            let rule = if key.rule.is_empty() { ALL_RULES } else { &key.rule };
            page.sample(declared, &[&key.domain, rule, kind.name()], 1);
        }
    },
);

static BEGUN: CounterFamily<1> = CounterFamily::starting_with(
    "tollgate_anomalies_total",
    &["kind"],
    "Anomalies that began.",
    &[["rate_high"], ["rate_low"], ["rate_drift"], ["denied_share_high"]],
);

static EVALUATIONS: CounterFamily<1> = CounterFamily::starting_with(
    "tollgate_anomaly_evaluations_total",
    &["result"],
    "Minutes of the fleet's traffic that this instance evaluated, and incomplete ones.",
    &[["evaluated"], ["gap"]],
);

static SERIES: GaugeFamily<1> = GaugeFamily::new(
    "tollgate_anomaly_series",
    &["state"],
    "Rules and domains whose traffic is compared with a baseline, and those that are learned; on the instance that evaluates them.",
    &[["learned"], ["learning"]],
);

/// The active anomalies, at most as many as there are series and kinds.
static ALL: Mutex<Vec<(SeriesKey, AnomalyKind)>> = Mutex::new(Vec::new());

/// Records the active anomalies.
pub(super) fn active(all: Vec<(SeriesKey, AnomalyKind)>) {
    *ALL.lock() = all;
}

/// Counts an anomaly that began.
pub(super) fn begun(kind: AnomalyKind) {
    BEGUN.increment([kind.name()]);
}

/// Counts an evaluated minute.
pub(super) fn minute(is_complete: bool) {
    EVALUATIONS.increment([if is_complete { "evaluated" } else { "gap" }]);
}

/// Records the number of series.
pub(super) fn series(status: SeriesStatus) {
    SERIES.set(["learned"], status.learned as f64);
    SERIES.set(["learning"], status.learning as f64);
}

/// Removes the anomalies and series of an instance that no longer evaluates.
pub(super) fn none() {
    active(Vec::new());
    series(SeriesStatus::default());
}
