//! Lines of decisions, over every transport, and environments of envoyproxy/ratelimit.

use super::server::{Line, Received, Server, Value};
use super::*;
use crate::docs;

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

/// Starts with an environment of the reference, and a rule that is matched this many times.
async fn as_there(variables: &[(&str, &str)], calls: usize) {
    let config = rules(RULES);
    let mut program = command();
    program.envs(variables.iter().copied()).env("STATS_FLUSH_INTERVAL", "100ms");
    let tollgate = Tollgate::spawn_by(program, config.path(), &[]);
    tollgate.wait_until_ready();
    send(&mut tollgate.client().await, calls).await;
    end(tollgate).await;
}

#[tokio::test]
async fn an_environment_of_the_reference_sends_plain_lines_by_tcp() {
    let server = Server::tcp(free_port());
    let variables = [
        ("STATSD_HOST", "localhost"),
        ("STATSD_PORT", server.port()),
        ("USE_STATSD", "true"),
        ("USE_PROMETHEUS", "true"),
        ("EXTRA_TAGS", "zone:eu.1,env:prod"),
    ];
    as_there(&variables, 20).await;
    let tagged = |(name, sum)| (format!("{name}#env:prod,zone:eu_1"), sum);
    assert_eq!(server.end().sums(), expected(20).into_iter().map(tagged).collect());
}

#[tokio::test]
async fn an_environment_of_the_reference_sends_datadogs_lines_as_its_mogrifiers_say() {
    let server = Server::udp();
    let variables = [
        ("USE_STATSD", "false"),
        ("USE_DOG_STATSD", "true"),
        ("STATSD_HOST", "127.0.0.1"),
        ("STATSD_PORT", server.port()),
        ("EXTRA_TAGS", "env:prod"),
        ("USE_DOG_STATSD_MOGRIFIERS", "RULES,NEVER"),
        ("DOG_STATSD_MOGRIFIER_RULES_PATTERN", r"^ratelimit\.service\.rate_limit\.([^.]+)\.(.+)\.([^.]+)$"),
        ("DOG_STATSD_MOGRIFIER_RULES_NAME", "ratelimit.service.rate_limit.$3"),
        ("DOG_STATSD_MOGRIFIER_RULES_TAGS", "domain:$1,descriptor:$2"),
        ("DOG_STATSD_MOGRIFIER_NEVER_PATTERN", r"rate_limit\.edge"),
        ("DOG_STATSD_MOGRIFIER_NEVER_NAME", "never"),
    ];
    as_there(&variables, 20).await;
    let rewritten = |(name, sum): (String, u64)| {
        let name = match name.strip_prefix("ratelimit.service.rate_limit.edge.") {
            None => format!("{name}#env:prod"),
            Some(rest) => {
                let (descriptor, kind) = rest.rsplit_once('.').expect("a kind");
                format!("ratelimit.service.rate_limit.{kind}#env:prod,domain:edge,descriptor:{descriptor}")
            }
        };
        (name, sum)
    };
    assert_eq!(server.end().sums(), expected(20).into_iter().map(rewritten).collect());
}

#[tokio::test]
async fn nothing_is_sent_if_switched_off_or_without_an_address() {
    let server = Server::tcp(free_port());
    let to = [("STATSD_HOST", "127.0.0.1"), ("STATSD_PORT", server.port())];
    for off in [("USE_STATSD", "false"), ("DISABLE_STATS", "true")] {
        as_there(&[&to[..], &[off]].concat(), 11).await;
    }
    assert_eq!(server.end().connections, 0);
}
