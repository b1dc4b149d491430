//! Requests that are charged all or none, on a real Redis.

use std::io::{BufRead, BufReader, Write};
use std::sync::atomic::AtomicUsize;

use crate::support::prelude::*;

/// A client's own limit, one for each of its endpoints, and one for what it does at the same time; and a team's.
const RULES: &str = "
domain: d
atomic: true
hash_tag: [client]
descriptors:
- key: client
  rate_limit: {unit: year, requests_per_unit: 100000}
  descriptors:
  - {key: endpoint, rate_limit: {algorithm: sliding_window_log, unit: year, requests_per_unit: 5000}}
  - {key: exhausted, rate_limit: {algorithm: token_bucket, unit: year, requests_per_unit: 1}}
  - {key: window, rate_limit: {algorithm: sliding_window, unit: year, requests_per_unit: 5000}}
  - {key: bucket, rate_limit: {algorithm: token_bucket, unit: year, requests_per_unit: 5000}}
  - {key: places, rate_limit: {algorithm: concurrency, requests_per_unit: 5000}}
- key: team
  rate_limit: {unit: year, requests_per_unit: 50}
- key: trickle
  rate_limit: {algorithm: token_bucket, unit: second, requests_per_unit: 1000, burst: 2}
- key: everybody
  rate_limit: {algorithm: token_bucket, unit: second, requests_per_unit: 1000}
";

const ARGUMENTS: [&str; 4] = ["--store-timeout", "10s", "--workers", "2"];

fn start(redis: &Redis, rules: &TempDir) -> Tollgate {
    Tollgate::start(rules.path(), &[&["--store", &redis.url()], &ARGUMENTS[..]].concat())
}

/// The number of passing requests among all that the tasks send.
async fn admitted(instances: &Arc<[Tollgate; 2]>, request: &RateLimitRequest, per_task: usize) -> u32 {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (instances, request) = (Arc::clone(instances), request.clone());
        tasks.spawn(async move {
            let mut client = instances[task % 2].client().await;
            let mut admitted = 0;
            for _ in 0..per_task {
                let answer = client.call(request.clone()).await.expect("an answer");
                admitted += u32::from(answer.overall_code() == Code::Ok);
            }
            admitted
        });
    }
    tasks.join_all().await.into_iter().sum()
}

/// The remaining quota of each descriptor, without charging any.
async fn remaining(client: &mut Client, request: &RateLimitRequest) -> Vec<u32> {
    let mut look = request.clone();
    for descriptor in &mut look.descriptors {
        descriptor.hits_addend = Some(0);
    }
    let answer = client.call(look).await.expect("an answer");
    answer.statuses.iter().map(|status| status.limit_remaining).collect()
}

/// Counts the scripts that a Redis runs, until it is dropped.
struct Monitor {
    calls: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Monitor {
    fn start(redis: &Redis) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", redis.port())).expect("connects");
        stream.set_read_timeout(Some(Duration::from_millis(50))).expect("can be set");
        stream.write_all(b"MONITOR\r\n").expect("is sent");
        let mut lines = BufReader::new(stream);
        let mut line = Vec::new();
        lines.read_until(b'\n', &mut line).expect("an answer");
        assert_eq!(line, b"+OK\r\n");
        let monitor = Self { calls: Arc::default(), stop: Arc::default() };
        let (calls, stop) = (Arc::clone(&monitor.calls), Arc::clone(&monitor.stop));
        thread::spawn(move || {
            let mut line = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                // MONITOR shows commands of a script with `lua` in place of an address.
                if lines.read_until(b'\n', &mut line).is_ok() {
                    let has = |text: &[u8]| line.windows(text.len()).any(|part| part == text);
                    // Of the domain: instances also share their state with each other.
                    let is_call = has(b"\"EVALSHA\"") && has(b"{d|");
                    calls.fetch_add(usize::from(is_call), Ordering::Relaxed);
                    line.clear();
                }
            }
        });
        monitor
    }

    /// Waits until this many calls were seen, and a moment for more.
    async fn settle(&self, expected: usize) -> usize {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.calls.load(Ordering::Relaxed) < expected && Instant::now() < deadline {
            sleep(Duration::from_millis(10)).await;
        }
        sleep(Duration::from_millis(100)).await;
        self.calls.load(Ordering::Relaxed)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

const TASKS: usize = 25;
const REQUESTS_PER_TASK: usize = 40;

#[tokio::test]
async fn one_exhausted_limit_of_three_leaves_the_others_unchanged_without_extra_calls() {
    let (redis, rules) = (Redis::start(), rules(RULES));
    let instances = Arc::new([start(&redis, &rules), start(&redis, &rules)]);
    let three = request(
        "d",
        &[&[("client", "c")], &[("client", "c"), ("endpoint", "/a")], &[("client", "c"), ("exhausted", "x")]],
    );
    let mut client = instances[0].client().await;
    assert_eq!(client.call(three.clone()).await.expect("an answer").overall_code(), Code::Ok);
    let before = remaining(&mut client, &three).await;
    assert_eq!(before, [99_999, 4_999, 0]);

    let monitor = Monitor::start(&redis);
    let another = request("d", &[&[("client", "another"), ("window", "w")], &[("client", "another")]]);
    for _ in 0..REQUESTS_PER_TASK {
        assert_eq!(client.call(another.clone()).await.expect("an answer").overall_code(), Code::Ok);
    }
    assert_eq!(monitor.settle(REQUESTS_PER_TASK).await, REQUESTS_PER_TASK, "one call for each decision");

    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (instances, three) = (Arc::clone(&instances), three.clone());
        tasks.spawn(async move {
            let mut client = instances[task % 2].client().await;
            // Another request of the same client, which passes, between the denied ones.
            let other = request("d", &[&[("client", "c"), ("window", "w")]]);
            for _ in 0..REQUESTS_PER_TASK {
                let denied = client.call(three.clone()).await.expect("an answer");
                let codes: Vec<_> = denied.statuses.iter().map(|status| status.code()).collect();
                assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit]);
                assert_eq!(client.call(other.clone()).await.expect("an answer").overall_code(), Code::Ok);
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("all as expected");
    }
    // Those at the same time share calls, and what is known to be denied needs none.
    assert!(monitor.settle(REQUESTS_PER_TASK).await <= REQUESTS_PER_TASK + 2 * TASKS * REQUESTS_PER_TASK);
    assert_eq!(remaining(&mut client, &three).await, before);
    let window = remaining(&mut client, &request("d", &[&[("client", "c"), ("window", "w")]])).await;
    assert_eq!(window, [5_000 - (TASKS * REQUESTS_PER_TASK) as u32]);
}

#[tokio::test]
async fn charges_of_one_tag_are_refunded_when_another_denies() {
    let (redis, rules) = (Redis::start(), rules(RULES));
    let instances = Arc::new([start(&redis, &rules), start(&redis, &rules)]);
    // A tag for the client, with a counter of each algorithm, and one for the team.
    let spanning = request(
        "d",
        &[
            &[("client", "c")],
            &[("client", "c"), ("endpoint", "/a")],
            &[("client", "c"), ("window", "w")],
            &[("client", "c"), ("bucket", "b")],
            &[("client", "c"), ("places", "p")],
            &[("team", "t")],
        ],
    );
    let admitted = admitted(&instances, &spanning, REQUESTS_PER_TASK).await;
    assert_eq!(admitted, 50);
    let mut client = instances[0].client().await;
    let left = 5_000 - admitted;
    let expected = [100_000 - admitted, left, left, left, left, 50 - admitted];
    read_until(async || remaining(&mut client, &spanning).await, |remaining| *remaining == expected).await;
}

#[tokio::test]
async fn denied_requests_take_nothing_from_a_bucket_of_another_tag() {
    let (redis, rules) = (Redis::start(), rules(RULES));
    let instances = Arc::new([start(&redis, &rules), start(&redis, &rules)]);
    let exhausted = request("d", &[&[("everybody", "e")], &[("client", "c"), ("exhausted", "x")]]);
    let everybody = request("d", &[&[("everybody", "e")]]);
    let mut client = instances[0].client().await;
    assert_eq!(client.call(exhausted.clone()).await.expect("an answer").overall_code(), Code::Ok);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (instances, exhausted) = (Arc::clone(&instances), exhausted.clone());
        tasks.spawn(async move {
            let mut client = instances[task % 2].client().await;
            for _ in 0..REQUESTS_PER_TASK {
                let denied = client.call(exhausted.clone()).await.expect("an answer");
                let codes: Vec<_> = denied.statuses.iter().map(|status| status.code()).collect();
                assert_eq!(codes, [Code::Ok, Code::OverLimit]);
                assert!(denied.statuses[1].duration_until_reset.expect("a reply").seconds > 3_600);
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("all as expected");
        let left = remaining(&mut client, &everybody).await;
        assert!(left[0] >= 990, "{left:?} of 1000");
    }
}

#[tokio::test]
async fn passing_requests_are_charged_in_every_tag_even_if_quota_frees_up_meanwhile() {
    let (redis, rules) = (Redis::start(), rules(RULES));
    let instances = Arc::new([start(&redis, &rules), start(&redis, &rules)]);
    let both = request("d", &[&[("trickle", "t")], &[("client", "c")]]);
    let admitted = admitted(&instances, &both, 2 * REQUESTS_PER_TASK).await;
    let mut client = instances[0].client().await;
    let expected = 100_000 - admitted;
    read_until(
        async || remaining(&mut client, &request("d", &[&[("client", "c")]])).await,
        |left| *left == [expected],
    )
    .await;
}

#[tokio::test]
async fn a_denied_request_still_releases_its_lease() {
    let (redis, rules) = (Redis::start(), rules(RULES));
    let instance = start(&redis, &rules);
    let mut client = instance.client().await;
    let places = [("client", "c"), ("places", "p")];
    let answer = client.call(request("d", &[&places])).await.expect("an answer");
    let lease = &*lease_of(&answer).expect("a lease");
    assert_eq!(remaining(&mut client, &request("d", &[&places])).await, [4_999]);
    let exhausted = [("client", "other"), ("exhausted", "x")];
    client.call(request("d", &[&exhausted])).await.expect("an answer");
    let both = request("d", &[&exhausted, &[places[0], places[1], ("lease", lease)]]);
    assert_eq!(client.call(both).await.expect("an answer").overall_code(), Code::OverLimit);
    assert_eq!(remaining(&mut client, &request("d", &[&places])).await, [5_000]);
}
