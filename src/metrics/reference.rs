//! What envoyproxy/ratelimit counts, under the names and labels that its Prometheus endpoint has by default, so that
//! its dashboards and alerts go on. Nothing is counted for it: it is another way to read what there is.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    latency,
    page::{Kind, Page},
    series::{KINDS, Series},
    service, stat_name,
};

/// The order of [`Series::counted`], which has one more.
const RULES: [&str; 5] = [
    "ratelimit_service_rate_limit_total_hits",
    "ratelimit_service_rate_limit_within_limit",
    "ratelimit_service_rate_limit_near_limit",
    "ratelimit_service_rate_limit_over_limit",
    "ratelimit_service_rate_limit_shadow_mode",
];

/// The only call that is counted there.
const METHOD: &[(&str, &str)] = &[("grpc_method", "ShouldRateLimit")];

/// Domain, first key, and second key if there is one.
type Labels = (String, String, Option<String>);

/// Adds all of it to a page.
pub(super) fn write(page: &mut Page, all: &[Arc<Series>]) {
    let rules = summed(all);
    for (at, name) in RULES.into_iter().enumerate() {
        page.begin(name, Kind::Counter, "As in envoyproxy/ratelimit.");
        for ((domain, first, second), counted) in &rules {
            let second = second.as_deref().map(|second| ("key2", second));
            let labels: Vec<_> =
                [("domain", &**domain), ("key1", &**first)].into_iter().chain(second).collect();
            page.sample(name, &labels, counted.get(at).copied().unwrap_or_default());
        }
    }
    let service = service::so_far();
    let counter = |page: &mut Page, name: &str, samples: &[(&[(&str, &str)], u64)]| {
        page.begin(name, Kind::Counter, "As in envoyproxy/ratelimit.");
        samples.iter().for_each(|(labels, value)| page.sample(name, labels, value));
    };
    counter(
        page,
        "ratelimit_service_should_rate_limit_error",
        &[
            (&[("err_type", "redis_error")], service.redis_errors),
            (&[("err_type", "service_error")], service.service_errors),
        ],
    );
    let [succeeded, failed] = service.loads;
    counter(page, "ratelimit_service_config_load_success", &[(&[], succeeded)]);
    counter(page, "ratelimit_service_config_load_error", &[(&[], failed)]);
    counter(page, "ratelimit_service_total_requests", &[(METHOD, service.calls.count())]);
    let name = "ratelimit_service_response_time_seconds";
    latency::write_calls_as(page, name, "As in envoyproxy/ratelimit.", METHOD);
}

/// What rules counted, by the labels that they have there. There are at most two keys, so that deeper rules are one.
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

/// The labels of a path: its parts are told apart by dots, whoever wrote them.
fn labels(domain: &str, path: &str) -> Option<Labels> {
    let name = stat_name::of(domain, path);
    let mut parts = name.split('.').map(str::to_owned);
    Some((parts.next()?, parts.next()?, parts.next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_that_the_reference_gives_a_path() {
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
