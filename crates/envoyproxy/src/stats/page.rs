//! Metrics for Prometheus, with the names and labels that envoyproxy/ratelimit has by default.

use std::{collections::BTreeMap, sync::Arc};

use tollgate_metrics::series::{self, KINDS, Series};
use tollgate_metrics::{Computed, Declared, Metric, MetricKind};
use tollgate_serve::service::metrics::{REQUEST_DURATION, ResponseCounts};

use super::{loads, stat_name};

/// Metrics with the names of envoyproxy/ratelimit.
pub static METRICS: &[&dyn Metric] = &[&RULES, &ERRORS, &LOADS, &REQUESTS, &DURATION];

const HELP: &str = "As in envoyproxy/ratelimit.";

/// The only method that has metrics there.
const METHOD: &[&str] = &["ShouldRateLimit"];

const fn counter(name: &'static str, labels: &'static [&'static str]) -> Declared {
    Declared::counter(name, labels, HELP)
}

const RULE_LABELS: &[&str] = &["domain", "key1", "key2"];

/// The order of [`Series::counted`], which has one more.
static RULES: Computed<5> = Computed::group(
    [
        counter("ratelimit_service_rate_limit_total_hits", RULE_LABELS),
        counter("ratelimit_service_rate_limit_within_limit", RULE_LABELS),
        counter("ratelimit_service_rate_limit_near_limit", RULE_LABELS),
        counter("ratelimit_service_rate_limit_over_limit", RULE_LABELS),
        counter("ratelimit_service_rate_limit_shadow_mode", RULE_LABELS),
    ],
    |declared, page| {
        let rules = summed(&series::all());
        for (at, declared) in declared.iter().enumerate() {
            page.begin(declared);
            for ((domain, first, second), counted) in &rules {
                let values: Vec<&str> = [&**domain, &**first].into_iter().chain(second.as_deref()).collect();
                page.sample(declared, &values, counted.get(at).copied().unwrap_or_default());
            }
        }
    },
);

static ERRORS: Computed<1> = Computed::counter(
    "ratelimit_service_should_rate_limit_error",
    &["err_type"],
    HELP,
    |[declared], page| {
        let responses = ResponseCounts::read();
        page.begin(declared);
        page.sample(declared, &["redis_error"], responses.store_errors);
        page.sample(declared, &["service_error"], responses.other_errors);
    },
);

static LOADS: Computed<2> = Computed::group(
    [
        counter("ratelimit_service_config_load_success", &[]),
        counter("ratelimit_service_config_load_error", &[]),
    ],
    |[success, error], page| {
        let (succeeded, failed) = loads();
        page.single(success, succeeded);
        page.single(error, failed);
    },
);

static REQUESTS: Computed<1> =
    Computed::counter("ratelimit_service_total_requests", &["grpc_method"], HELP, |[declared], page| {
        page.begin(declared);
        page.sample(declared, METHOD, REQUEST_DURATION.observed().count());
    });

static DURATION: Computed<1> = Computed::group(
    [Declared {
        name: "ratelimit_service_response_time_seconds",
        kind: MetricKind::Histogram,
        labels: &["grpc_method"],
        help: HELP,
    }],
    |[declared], page| REQUEST_DURATION.write_as(page, declared, METHOD),
);

/// Domain, first key, and second key if there is one.
type Labels = (String, String, Option<String>);

/// Counts of rules by the labels that they have there. There are at most two keys, so that deeper rules are one.
fn summed(all: &[Arc<Series>]) -> BTreeMap<Labels, [u64; KINDS]> {
    let mut sums: BTreeMap<Labels, [u64; KINDS]> = BTreeMap::new();
    for series in all {
        let Some(labels) = labels(&series.domain, &series.path) else { continue };
        let sum = sums.entry(labels).or_default();
        for (sum, count) in sum.iter_mut().zip(series.counted()) {
            *sum = u64::saturating_add(*sum, count);
        }
    }
    sums
}

/// The labels of a path, whose parts are separated by dots, also by those of its keys and values.
fn labels(domain: &str, path: &str) -> Option<Labels> {
    let name = stat_name(domain, path);
    let mut parts = name.split('.').map(str::to_owned);
    Some((parts.next()?, parts.next()?, parts.next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_envoyproxy_ratelimit() {
        let of = |domain, path| labels(domain, path).expect("two parts");
        let expected = |domain: &str, first: &str, second: Option<&str>| {
            (domain.to_owned(), first.to_owned(), second.map(str::to_owned))
        };
        assert_eq!(of("edge", "tenant_acme"), expected("edge", "tenant_acme", None));
        assert_eq!(of("edge", "tenant.path_/login"), expected("edge", "tenant", Some("path_/login")));
        assert_eq!(of("edge", "a.b.c.d"), expected("edge", "a", Some("b")));
        assert_eq!(of("edge.eu", "a|b"), expected("edge", "eu", Some("a_b")));
        assert_eq!(of("a:b", "key"), expected("a_b", "key", None));
        assert_eq!(of("edge", "remote_address_10.0.0.1"), expected("edge", "remote_address_10_0_0_1", None));
    }
}
