//! Lines of decisions, over every transport.

use tollgate::proto::envoy::service::ratelimit::v3::RateLimitRequest;

use super::{
    CALL, RULES, end, expected, send,
    server::{Line, Received, Server, Value},
    tollgate,
};
use crate::{
    docs,
    support::{
        free_port,
        tollgate::{Tollgate, project, request, rules},
    },
};

#[tokio::test]
async fn decisions_are_exported_exactly_over_every_transport() {
    let config = rules(RULES);
    let directory = tempfile::tempdir().expect("a temporary directory");
    for server in [Server::udp(), Server::unix(directory.path()), Server::tcp(free_port())] {
        let tollgate = tollgate(config.path(), &server, &[]);
        let mut client = tollgate.client().await;
        // Over several intervals.
        for rounds in [20, 40, 60] {
            send(&mut client, 20).await;
            server.wait_for(&format!("{CALL}total_requests"), rounds);
        }
        // The last counts are exported at shutdown.
        send(&mut client, 17).await;
        drop(client);
        end(tollgate).await;
        let url = server.url.clone();
        let received = server.end();
        assert_eq!(received.sums(), expected(77), "{url}");
        let times = received.lines.iter().filter_map(|line| match line.value {
            Value::Timer { milliseconds, .. } => Some(milliseconds),
            Value::Counter(_) | Value::Gauge(_) => None,
        });
        assert!(times.clone().count() > 0 && times.into_iter().all(|time| time > 0.0 && time <= 1_000.0));
    }
}

#[tokio::test]
async fn large_batches_use_several_packets_and_split_no_line() {
    let descriptors: String = (0..300)
        .map(|number| format!("- {{key: a_rule_of_a_rather_long_name_{number}, rate_limit: {{unit: year, requests_per_unit: 9}}}}\n"))
        .collect();
    let config = rules(&format!("domain: edge\ndescriptors:\n{descriptors}"));
    let directory = tempfile::tempdir().expect("a temporary directory");
    for server in [Server::udp(), Server::unix(directory.path()), Server::tcp(free_port())] {
        // Nothing but the last one.
        let tollgate = tollgate(config.path(), &server, &["--statsd-interval", "1h"]);
        let mut client = tollgate.client().await;
        let keys: Vec<_> = (0..300).map(|number| format!("a_rule_of_a_rather_long_name_{number}")).collect();
        for some in keys.chunks(50) {
            let entries: Vec<[(&str, &str); 1]> = some.iter().map(|key| [(&**key, "x")]).collect();
            let descriptors: Vec<&[(&str, &str)]> = entries.iter().map(|entry| &entry[..]).collect();
            let _ = client.call(request("edge", &descriptors)).await.expect("an answer");
        }
        drop(client);
        end(tollgate).await;
        let received = server.end();
        let sums = received.sums();
        for key in &keys {
            for kind in ["total_hits", "within_limit"] {
                assert_eq!(sums[&format!("ratelimit.service.rate_limit.edge.{key}.{kind}")], 1);
            }
        }
        assert!(received.packets.len() > 3 || received.connections == 1, "{:?}", received.packets);
    }
}

#[tokio::test]
async fn failed_requests_and_unknown_domains_are_exported() {
    let (config, server) = (rules(RULES), Server::udp());
    let tollgate =
        tollgate(config.path(), &server, &["--store", "redis://127.0.0.1:1", "--ready-without-store"]);
    let mut client = tollgate.client().await;
    for _ in 0..3 {
        assert!(client.call(RateLimitRequest::default()).await.is_err());
        let _ = client.call(request("unknown", &[&[("user", "me")]])).await.expect("an answer");
        assert!(client.call(request("edge", &[&[("user", "me")]])).await.is_err());
    }
    drop(client);
    end(tollgate).await;
    let lenient = self::tollgate(config.path(), &server, &["--shadow-mode"]);
    send(&mut lenient.client().await, 13).await;
    end(lenient).await;
    let sums = server.end().sums();
    for (name, sum) in [
        ("ratelimit.service.call.should_rate_limit.redis_error", 3),
        ("ratelimit.service.call.should_rate_limit.service_error", 3),
        ("ratelimit.tollgate.unknown_domain_requests", 3),
        ("ratelimit.tollgate.degraded_requests", 3),
        ("ratelimit.tollgate.rate_limit.edge.user.degraded", 3),
        ("ratelimit_server.ShouldRateLimit.total_requests", 9 + 13),
        ("ratelimit.service.global_shadow_mode", 3),
    ] {
        assert_eq!(sums.get(name), Some(&sum), "{name} of {sums:#?}");
    }
}

#[tokio::test]
async fn the_documented_example_sends_the_documented_lines() {
    let server = Server::udp();
    let shown = docs::block("statsd");
    let example = docs::page("docs/reference/statsd.md").text;
    let example =
        example.lines().find(|line| line.contains(" --statsd dogstatsd+udp://")).expect("an example");
    let words: Vec<String> = example
        .split_whitespace()
        .skip(1)
        .map(|word| match word.strip_prefix("dogstatsd+udp://") {
            Some(_) => format!("dogstatsd+{}", server.url),
            None => word.to_owned(),
        })
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let tollgate = Tollgate::start(&project("config/default"), &words);
    let mut client = tollgate.client().await;
    for _ in 0..5 {
        assert!(client.passes("edge", &[("path", "/login")]).await);
    }
    drop(client);
    end(tollgate).await;
    let received = server.end();
    // How long calls take is not the same everywhere.
    let mut expected = Received::default();
    expected.lines.extend(shown.lines().map(Line::parse));
    assert_eq!(received.sums(), expected.sums());
}
