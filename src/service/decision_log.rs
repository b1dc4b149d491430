//! Decisions in the log, at `debug`: a line for each descriptor.

use std::time::Duration;

use tollgate_core::descriptor::Descriptor;
use tollgate_limiter::decision::{Code, Decision, Status};
use tollgate_runtime::{foreign_text::bounded, log_budget::LogBudget};

/// Lines of decisions: a hundred a second.
static LINES: LogBudget = LogBudget::new(100, Duration::from_millis(10));

/// Logs the decision of each descriptor, with values of the request.
#[cold]
pub(super) fn log(domain: &str, descriptors: &[Descriptor<'_>], decision: &Decision<'_>) {
    for (descriptor, status) in descriptors.iter().zip(&decision.statuses) {
        let Some(suppressed) = LINES.take() else { continue };
        let pairs: Vec<String> =
            descriptor.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value)).collect();
        let limited = status.limited();
        let rule = match status {
            Status::Limited(limited) => limited.rule.map(|rule| rule.path()),
            Status::Shedding(shed) => Some(shed.rule.path()),
            Status::Unlimited => Some("unlimited".to_owned()),
            Status::NoLimit | Status::Off { .. } | Status::Denied => None,
        };
        tracing::debug!(
            domain = bounded(domain),
            descriptor = bounded(&pairs.join(",")),
            rule = rule.as_deref().unwrap_or("none"),
            verdict = if status.code() == Code::Ok { "ok" } else { "over_limit" },
            hits = descriptor.hits.charged(),
            limit = limited.map(|limited| limited.quota.limit),
            remaining = limited.map(|limited| limited.verdict.remaining),
            list = decision.listed.map(|listed| listed.list().name()),
            degraded = decision.degraded.map(|degraded| degraded.reason),
            suppressed,
            "descriptor decided"
        );
    }
}
