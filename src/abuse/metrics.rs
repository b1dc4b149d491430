//! Metrics of the detection of abuse.

use tollgate_control::AutomaticMode;
use tollgate_limiter::abuse::Refusal;
use tollgate_metrics::{Counter, CounterFamily, Metric};

/// Metrics of the detection of abuse.
pub static METRICS: &[&dyn Metric] = &[&LISTED, &REFUSED, &KEYS_DROPPED];

static LISTED: CounterFamily<1> = CounterFamily::starting_with(
    "tollgate_abuse_listed_total",
    &["mode"],
    "Keys that this instance added to the adaptive deny list.",
    &[[AutomaticMode::DryRun.name()], [AutomaticMode::Enforce.name()]],
);

static REFUSED: CounterFamily<1> = CounterFamily::starting_with(
    "tollgate_abuse_refused_total",
    &["reason"],
    "Keys that met an abuse rule and were not listed.",
    &[["exempt"], ["range"], [FULL]],
);

static KEYS_DROPPED: Counter = Counter::new(
    "tollgate_abuse_keys_dropped_total",
    "Observed keys that were not reported because there were too many.",
);

/// Reason of a refusal by a full list.
const FULL: &str = "full";

/// Counts a listed key.
pub(super) fn listed(mode: AutomaticMode) {
    LISTED.increment([mode.name()]);
}

/// Counts a key that is not listed.
pub(super) fn refused(refusal: Refusal) {
    REFUSED.increment([match refusal {
        Refusal::Exempt => "exempt",
        Refusal::Range => "range",
    }]);
}

/// Counts a key without room on the list.
pub(super) fn full() {
    REFUSED.increment([FULL]);
}

/// Counts observed keys that were not reported.
pub(super) fn keys_dropped(count: u64) {
    KEYS_DROPPED.add(count);
}
