//! Scenarios of users from end to end: real Envoys, real instances and a real Redis.

use crate::support::http::{self, Answer};
use crate::support::prelude::*;

/// A trading API: each key may place 100 orders in any minute.
const RULES: &str = "domain: edge
descriptors:
- key: api_key
  rate_limit: {algorithm: sliding_window_log, unit: minute, requests_per_unit: 100}
";

const LIMIT: usize = 100;

const MINUTE: Duration = Duration::from_secs(60);

/// Requests of a bot that sends as fast as it can.
const BURST: usize = 500;

/// Connections that it uses, half of them to each Envoy.
const CONNECTIONS: usize = 10;

fn order(envoy: &Envoy, key: &str) -> Answer {
    http::get_as(&format!("http://127.0.0.1:{}/orders", envoy.port), &[("x-api-key", key)])
}

/// A trading bot sends 500 orders at once, over two Envoys with a tollgate each, against 100 a minute: 100 pass in all, each
/// denial states when to return, and a person with a key of their own notices nothing.
#[test]
fn a_bot_that_sends_500_requests_at_once_gets_100_a_minute() {
    let redis = Redis::start();
    let start = || Tollgate::serving(RULES, &["--store", &redis.url(), "--store-timeout", "5s"]);
    let tollgates = [start(), start()];
    let envoys = tollgates.each_ref().map(|tollgate| {
        Bootstrap::read("edge", tollgate.grpc_port, None)
            .with(
                "- remote_address: {}",
                "- request_headers: {header_name: x-api-key, descriptor_key: api_key}",
            )
            .run(&[tollgate.grpc_port])
    });

    let answers: Vec<(Instant, Answer, Instant)> = thread::scope(|scope| {
        let connections: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                let envoy = &envoys[number % envoys.len()];
                scope.spawn(move || {
                    let one = || (Instant::now(), order(envoy, "bot"), Instant::now());
                    (0..BURST / CONNECTIONS).map(|_| one()).collect::<Vec<_>>()
                })
            })
            .collect();
        connections.into_iter().flat_map(|each| each.join().expect("no panic")).collect()
    });

    assert_eq!(answers.len(), BURST);
    let mut admitted = Vec::new();
    for (begun, answer, ended) in &answers {
        match answer.status {
            200 => admitted.push((*begun, *ended)),
            429 => {
                let seconds = answer.header("retry-after").and_then(|text| text.parse::<u64>().ok());
                assert!(seconds.is_some_and(|it| (1..=60).contains(&it)), "{answer:?}");
                assert_eq!(answer.header("x-ratelimit-remaining"), Some("0"), "{answer:?}");
            }
            other => panic!("{other}: {answer:?}"),
        }
    }
    assert!(admitted.len() >= LIMIT, "{} of {BURST} passed", admitted.len());
    // On a machine that is too busy for a burst, the next minute admits more: never more than the limit in any minute.
    admitted.sort();
    for (earlier, later) in admitted.iter().zip(admitted.iter().skip(LIMIT)) {
        assert!(later.1 - earlier.0 >= MINUTE, "{} passed within a minute", LIMIT + 1);
    }
    for envoy in &envoys {
        assert_eq!(order(envoy, "person").status, 200);
    }
}
