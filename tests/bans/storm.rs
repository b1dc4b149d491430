//! A client that ignores `Retry-After`, beside clients that behave.

use super::{client::RuleUnderTest, *};

const SECOND: u64 = 1_000_000;

/// A rule whose bans last 10, 20, 40 and at most 60 minutes, and of which each day takes a doubling off.
fn growing() -> RuleUnderTest {
    let ban = BanParameters {
        threshold: 10,
        interval: 60,
        max_duration: Some(3_600),
        mode: BanMode::Enforce,
        ..BanParameters::default()
    };
    RuleUnderTest { ban, ..RuleUnderTest::per_minute(Algorithm::FixedWindow, 60) }
}

/// Sends ten requests a second from `from` on until a ban begins; gives the second in which it ends, and its level.
async fn storm(subject: &Subject, name: &str, from: u64) -> (u64, u8) {
    let request = growing().request(name);
    for step in 0..6_000 {
        let now = at(from * SECOND + step * SECOND / 10);
        let verdict = subject.decide(now, &request).await[0];
        if let Some(ban) = verdict.ban {
            assert!(!verdict.admitted && verdict.retry_after == ban.ends_at().since(now), "{verdict:?}");
            return (ban.ends_at().since(at(0)).as_secs(), ban.level.get());
        }
    }
    panic!("no ban in ten minutes");
}

#[tokio::test]
async fn bans_of_a_storm_double_to_the_maximum_and_decay_after_it_stops() {
    let redis = Redis::start();
    for subject in [Subject::memory(), Subject::redis(redis.store())] {
        let (mut from, mut levels) = (0, Vec::new());
        for _ in 0..6 {
            let (ends, level) = storm(&subject, "storm", from).await;
            // It never stopped, and the ban is no longer for it.
            let knock = subject.decide(at((ends - 1) * SECOND), &growing().request("storm")).await[0];
            assert_eq!(knock.ban.map(|ban| ban.ends_at()), Some(at(ends * SECOND)));
            levels.push((level, ends));
            from = ends;
        }
        let lengths: Vec<u64> = levels.windows(2).map(|pair| (pair[1].1 - pair[0].1) / 600).collect();
        let levels: Vec<u8> = levels.into_iter().map(|(level, _)| level).collect();
        assert_eq!(levels, [1, 2, 3, 4, 4, 4]);
        // Each has less than a minute of traffic before it.
        assert_eq!(lengths, [2, 4, 6, 6, 6]);
        let day = 86_400;
        assert_eq!(storm(&subject, "storm", from + 3 * day).await.1, 2, "three of four are forgiven");
        assert_eq!(storm(&subject, "storm", from + 9 * day).await.1, 1, "all are forgiven");
    }
}

const RULES: &str = "
domain: d
descriptors:
- key: banned
  rate_limit:
    unit: day
    requests_per_unit: 5
    ban: {threshold: 2, interval: 10m, duration: 1h, mode: enforce}
";

fn is_banned(response: &RateLimitResponse) -> bool {
    let mut headers = response.response_headers_to_add.iter();
    headers.any(|header| header.key == "x-ratelimit-policy" && header.value == "banned")
}

/// Calls that were sent to Redis for decisions.
fn sent_calls(tollgate: &Tollgate) -> u64 {
    let page = tollgate.metrics();
    let line =
        page.lines().find_map(|line| line.strip_prefix("tollgate_redis_calls_total{source=\"sent\"} "));
    line.and_then(|count| count.parse().ok()).expect("a count")
}

/// Sends a request until a response is as wanted.
async fn until(client: &mut Client, key: &str, is_right: impl Fn(&RateLimitResponse) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let response = client.call(request("d", &[&[(key, "storm")]])).await.expect("a response");
        if is_right(&response) {
            return;
        }
        assert!(Instant::now() < deadline, "{key}: {response:?}");
    }
}

#[tokio::test]
async fn banned_requests_cost_redis_a_call_in_ten_seconds_and_honest_clients_pass() {
    let (redis, config) = (Redis::start(), rules(RULES));
    let arguments =
        ["--store", &redis.url(), "--store-timeout", "5s", "--workers", "1", "--replicas-hint", "1"];
    let tollgate = Tollgate::start(config.path(), &arguments);
    let mut client = tollgate.client().await;
    until(&mut client, "banned", is_banned).await;
    let (before, begun) = (sent_calls(&tollgate), Instant::now());
    for _ in 0..2_000 {
        let response = client.call(request("d", &[&[("banned", "storm")]])).await.expect("a response");
        assert!(is_banned(&response), "{response:?}");
    }
    let calls = u128::from(sent_calls(&tollgate) - before);
    // However many requests there are, and however slow the machine is: a call that gets no response takes 5 s.
    assert!(calls <= begun.elapsed().as_millis() / 5_000 + 1, "{calls} calls in {:?}", begun.elapsed());
    for honest in 0..200 {
        let value = format!("honest-{honest}");
        let response = client.call(request("d", &[&[("banned", &value)]])).await.expect("a response");
        assert_eq!((is_banned(&response), response.overall_code()), (false, Code::Ok), "{response:?}");
    }
    // A ban that this worker saw stands while Redis is away.
    redis.signal("STOP");
    for _ in 0..10 {
        let response = client.call(request("d", &[&[("banned", "storm")]])).await.expect("a response");
        assert!(is_banned(&response), "{response:?}");
    }
    redis.signal("CONT");
}
