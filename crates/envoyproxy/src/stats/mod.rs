//! Statistics under the names of envoyproxy/ratelimit, so that its dashboards and alerts keep working.
//!
//! Nothing is counted for them: they are other names of what the `metrics` modules count.
//!
//! - On the page for Prometheus ([`METRICS`]), with the names and labels of its default endpoint.
//! - As text ([`text()`]), as its debug port has them.
//! - For StatsD ([`DELTAS`]).

mod page;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use regex_automata::meta::Regex;
use tollgate_control as control;
use tollgate_limiter as limiter;
use tollgate_metrics::series::{self, KINDS, Series};
use tollgate_metrics::{DeltaSources, Reader, publish};
use tollgate_rules::{List, unescaped_path as unescaped};
use tollgate_serve::service::metrics::{REQUEST_DURATION, ResponseCounts};
use tollgate_store::redis;

pub use self::page::METRICS;

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
    series_name: stat_name,
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

/// Lines `NAME: COUNT`, sorted, including zeros. Series that have one name are one line.
pub fn text() -> String {
    publish();
    lines(&series::all())
}

fn lines(all: &[Arc<Series>]) -> String {
    let of_rules = all.iter().flat_map(|series| {
        let name = stat_name(&series.domain, &series.path);
        let kinds = RULES.into_iter().zip(series.counted());
        kinds.map(move |((before, after), count)| (format!("{before}.{name}.{after}"), count))
    });
    let of_service = COUNTERS.into_iter().map(|(name, total)| (name.to_owned(), total()));
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in of_rules.chain(of_service) {
        let sum = sums.entry(name).or_default();
        *sum = sum.saturating_add(count);
    }
    sums.into_iter().map(|(name, count)| format!("{name}: {count}\n")).collect()
}

/// An IPv4 address, whose dots do not separate parts.
static ADDRESS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}").ok());

/// The name of a rule: its domain and the parts of its path, with dots between them and no escapes. Characters that would end the name or
/// its line are `_`; so are the dots within an address.
fn stat_name(domain: &str, path: &str) -> String {
    let is_no_part = |character: char| matches!(character, ':' | '|') || character.is_control();
    let mut name = format!("{domain}.{}", unescaped(path)).replace(is_no_part, "_");
    let Some(regex) = &*ADDRESS else { return name };
    let addresses: Vec<_> = regex.find_iter(&name).map(|found| found.range()).collect();
    for range in addresses {
        if let Some(address) = name.get(range.clone()).map(|address| address.replace('.', "_")) {
            name.replace_range(range, &address);
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_with_one_name_are_one_line() {
        let of_value = series::of_values("listed", "tenant_acme", "tenant", 1).expect("room");
        of_value.counters().add([2, 0, 0, 0, 0, 0]);
        let (of_rule, _) = series::of_rule("listed", "tenant_acme");
        of_rule.counters().add([3, 0, 0, 0, 0, 0]);
        let page = lines(&[of_rule, of_value]);
        let of_total = page.lines().filter(|line| line.contains("listed.tenant_acme.total_hits"));
        let expected = "ratelimit.service.rate_limit.listed.tenant_acme.total_hits: 5";
        assert_eq!(of_total.collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn a_name_has_no_character_that_ends_it_and_no_dots_within_addresses() {
        for (domain, path, expected) in [
            ("edge", "tenant_acme.path", "edge.tenant_acme.path"),
            ("a:b", "c|d.e", "a_b.c_d.e"),
            ("d", "remote_address_10.0.0.255.x", "d.remote_address_10_0_0_255.x"),
            ("1.2.3", "4.5", "1_2_3_4.5"),
            ("d", "10.0.0.1 192.168.0.1/16", "d.10_0_0_1 192_168_0_1/16"),
            ("d", "version_1.2.3", "d.version_1.2.3"),
            ("d", r"host_a\.example\.com.\404", "d.host_a.example.com.404"),
            ("d", "x\ny:1|c\r", "d.x_y_1_c_"),
        ] {
            assert_eq!(stat_name(domain, path), expected);
        }
    }
}
