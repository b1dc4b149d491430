//! Statistics under the names of envoyproxy/ratelimit, so that its dashboards and alerts keep working.
//!
//! Nothing is counted for them: they are other names of what the `metrics` modules count.
//!
//! - On the page for Prometheus ([`METRICS`]), with the names and labels of its default endpoint.
//! - As text ([`text()`]), as its debug port has them.
//! - For StatsD ([`DELTAS`]).

mod page;
mod stat_name;
mod text;

use tollgate_control as control;
use tollgate_limiter as limiter;
use tollgate_metrics::{DeltaSources, Reader, series::KINDS};
use tollgate_rules::List;
use tollgate_store::redis;

pub use self::{page::METRICS, text::text};
use crate::service::metrics::{REQUEST_DURATION, ResponseCounts};

/// Prefix and suffix of the name of a rule, in the order of the counters of its series.
const RULES: [(&str, &str); KINDS] = {
    let [hits, within, near, over, shadow, degraded] = limiter::metrics::RULE_KINDS;
    let prefix = "ratelimit.service.rate_limit";
    [
        (prefix, hits),
        (prefix, within),
        (prefix, near),
        (prefix, over),
        (prefix, shadow),
        ("ratelimit.tollgate.rate_limit", degraded),
    ]
};

/// Counters of the whole service. Those of `ratelimit.tollgate` have no equivalent there.
const COUNTERS: [Reader<u64>; 11] = [
    ("ratelimit.service.call.should_rate_limit.redis_error", || ResponseCounts::read().store_errors),
    ("ratelimit.service.call.should_rate_limit.service_error", || ResponseCounts::read().other_errors),
    ("ratelimit.service.config_load_success", || loads().0),
    ("ratelimit.service.config_load_error", || loads().1),
    ("ratelimit.service.global_shadow_mode", limiter::metrics::shadow_mode_passes),
    ("ratelimit_server.ShouldRateLimit.total_requests", || REQUEST_DURATION.observed().count()),
    ("ratelimit.tollgate.over_limit_requests", || ResponseCounts::read().over_limit),
    ("ratelimit.tollgate.degraded_requests", limiter::metrics::degraded_requests),
    ("ratelimit.tollgate.unknown_domain_requests", limiter::metrics::unknown_domains),
    ("ratelimit.tollgate.list_allowed_requests", || listed(List::Allow)),
    ("ratelimit.tollgate.list_denied_requests", || listed(List::Deny)),
];

/// Sources of the deltas for StatsD.
pub static DELTAS: DeltaSources = DeltaSources {
    series: RULES,
    series_name: stat_name::of,
    counters: &COUNTERS,
    times: ("ratelimit_server.ShouldRateLimit.response_time", || {
        REQUEST_DURATION.observed().middles().collect()
    }),
    gauge: ("ratelimit.tollgate.redis_breakers_open", redis::metrics::breakers_open),
};

/// Loads of rules that succeeded, and that failed.
fn loads() -> (u64, u64) {
    control::metrics::config_loads().into()
}

fn listed(list: List) -> u64 {
    let counts = List::ALL.into_iter().zip(limiter::metrics::listed_requests());
    counts.filter(|(each, _)| *each == list).map(|(_, count)| count).sum()
}
