//! Counts, as a StatsD server receives them.

mod exports;
mod outages;
mod server;

use std::{net::UdpSocket, os::unix::net::UnixDatagram};

use self::server::Server;
use crate::support::prelude::*;

const RULES: &str = "
domain: edge
descriptors:
- {key: user, rate_limit: {unit: year, requests_per_unit: 10}}
- {key: watched, rate_limit: {unit: year, requests_per_unit: 10}, shadow_mode: true}
- {key: remote_address, rate_limit: {unit: year, requests_per_unit: 1000000}, value_to_metric: true}
- key: tenant
  descriptors:
  - {key: path, rate_limit: {unit: year, requests_per_unit: 1000000}}
";

/// A tollgate that exports to a server at an interval.
fn tollgate(config: &Path, server: &Server, arguments: &[&str]) -> Tollgate {
    Tollgate::start(config, &[&["--statsd", &server.url, "--statsd-interval", "100ms"], arguments].concat())
}

/// Sends requests for one hit on each of the rules.
async fn send(client: &mut Client, count: usize) {
    for _ in 0..count {
        let deep = [("tenant", "acme"), ("path", "/")];
        let all: [&[(&str, &str)]; 4] =
            [&[("user", "me")], &[("watched", "me")], &[("remote_address", "10.0.0.1\nx:1|c")], &deep];
        let _ = client.call(request("edge", &all)).await.expect("an answer");
    }
}

/// Stops it, while connections are being closed.
async fn end(mut tollgate: Tollgate) -> Tollgate {
    tollgate.signal("TERM");
    let ended = tokio::task::spawn_blocking(move || (tollgate.wait(), tollgate)).await;
    let (code, tollgate) = ended.expect("no panic");
    assert_eq!(code, Some(0));
    tollgate
}

const CALL: &str = "ratelimit_server.ShouldRateLimit.";

/// The expected sums of this many rounds of [`send`].
fn expected(rounds: u64) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    let address = "remote_address_10_0_0_1_x_1_c";
    for (path, kind, count) in [
        ("user", "total_hits", rounds),
        ("user", "within_limit", 10),
        ("user", "near_limit", 2),
        ("user", "over_limit", rounds - 10),
        ("watched", "total_hits", rounds),
        ("watched", "within_limit", 10),
        ("watched", "near_limit", 2),
        ("watched", "over_limit", rounds - 10),
        ("watched", "shadow_mode", rounds - 10),
        (address, "total_hits", rounds),
        (address, "within_limit", rounds),
        ("tenant.path", "total_hits", rounds),
        ("tenant.path", "within_limit", rounds),
    ] {
        sums.insert(format!("ratelimit.service.rate_limit.edge.{path}.{kind}"), count);
    }
    for name in ["total_requests", "response_time"] {
        sums.insert(format!("{CALL}{name}"), rounds);
    }
    sums.insert("ratelimit.service.config_load_success".to_owned(), 1);
    sums.insert("ratelimit.tollgate.over_limit_requests".to_owned(), rounds - 10);
    sums.insert("ratelimit.tollgate.redis_breakers_open".to_owned(), 0);
    sums
}
