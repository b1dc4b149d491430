//! Page of the metrics.

use super::{code, head, row};
use crate::bootstrap::catalogue;

const INTRODUCTION: &str = "# Metrics

Metrics of `/metrics`, in Prometheus' text format. A metric of a part that is not in use, such as Redis, TLS or a control
plane, has no series. Those that begin with `ratelimit_` are exported with `--reference-metrics`.
[Metrics by topic](../guides/metrics.md) has the values of the labels.

";

pub(super) fn page() -> String {
    let rows = catalogue().into_iter().map(|declared| {
        let labels = code(declared.labels.iter().copied());
        row([&code([declared.name]), declared.kind.name(), &labels, declared.help])
    });
    format!("{INTRODUCTION}{}{}", head(["Metric", "Type", "Labels", "Meaning"]), rows.collect::<String>())
}
