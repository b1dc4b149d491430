//! Concurrency limits behind a real Envoy, by `deploy/envoy/concurrency.yaml`.

use fastrand::Rng;

use super::*;
use crate::support::{envoy::validate, upstream::Upstream};

/// The outcome of a request at its client.
#[derive(Debug)]
struct Answer(String);

impl Answer {
    fn status(&self) -> u16 {
        self.0.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Sends a request on a connection of its own and waits for the answer.
async fn get(port: u16, user: Option<&str>) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("Envoy listens");
    let user = user.map(|user| format!("x-user: {user}\r\n")).unwrap_or_default();
    let request = format!("GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{user}\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    Answer(answer)
}

/// Sends this many concurrent requests; returns the responses in the order of arrival.
fn burst(port: u16, user: Option<&'static str>, count: usize) -> JoinSet<Answer> {
    (0..count).map(|_| get(port, user)).collect()
}

fn statuses(answers: &[Answer]) -> Vec<u16> {
    answers.iter().map(Answer::status).collect()
}

/// The number of held permits of a limit, as tollgate reports it.
async fn held(client: &mut Client, limit: u32, entries: &[(&str, &str)]) -> u32 {
    limit - client.left("concurrency", entries).await
}

#[test]
fn envoy_accepts_the_file() {
    let (is_valid, report) = validate(&project("deploy/envoy/concurrency.yaml"));
    assert!(is_valid, "{report}");
}

#[tokio::test]
async fn three_concurrent_requests_behave_as_the_file_documents() {
    let tollgate = Tollgate::start(&project("config/default"), &[]);
    let envoy = Envoy::concurrency(tollgate.grpc_port, None);
    let mut seen = statuses(&burst(envoy.port, Some("me"), 3).join_all().await);
    seen.sort_unstable();
    assert_eq!(seen, [200, 200, 429]);
}

#[tokio::test]
async fn requests_beyond_the_limit_are_denied_until_others_end() {
    let tollgate = Tollgate::start(&project("config/default"), &[]);
    let mut client = tollgate.client().await;
    for (user, limit, entries) in [(Some("me"), 2, [("user", "me")]), (None, 5, [("anonymous", "true")])] {
        let upstream = Upstream::closed().await;
        let envoy = Envoy::concurrency(tollgate.grpc_port, Some(upstream.port));
        let mut responses = burst(envoy.port, user, limit + 2);
        for _ in 0..2 {
            let denied = responses.join_next().await.expect("there are more").expect("no panic");
            assert_eq!((denied.status(), denied.header("retry-after")), (429, Some("1")));
        }
        until("it does not come about", async || upstream.inside() == limit).await;
        assert_eq!(held(&mut client, limit as u32, &entries).await as usize, limit);
        // Others have places of their own.
        let other = tokio::spawn(get(envoy.port, Some("other")));
        until("it does not come about", async || upstream.inside() == limit + 1).await;
        assert!(!other.is_finished(), "is held by the upstream");
        other.abort();

        upstream.open();
        assert_eq!(statuses(&responses.join_all().await), vec![200; limit]);
        until("it does not come about", async || held(&mut client, limit as u32, &entries).await == 0).await;
        assert_eq!(statuses(&burst(envoy.port, user, limit).join_all().await), vec![200; limit]);
        assert_eq!(upstream.most(), limit + 1, "the limit's and the other one");
    }
}

#[tokio::test]
async fn a_request_without_an_answer_holds_no_permit() {
    let tollgate = Tollgate::start(&project("config/default"), &[]);
    let upstream = Upstream::between(Duration::ZERO, Duration::from_millis(1)).await;
    let envoy = Envoy::concurrency(tollgate.grpc_port, Some(upstream.port));
    assert_eq!(get(envoy.port, Some("me")).await.status(), 200);
    drop(tollgate);
    assert_eq!(get(envoy.port, Some("me")).await.status(), 503);
    assert_eq!(upstream.served(), 1);
}

/// Requests of the soak.
const REQUESTS: usize = 2_000;
/// The number of clients, each of which sends sequentially.
const CLIENTS: usize = 14;
/// The percentage of requests that their client cancels at a random moment.
const CANCELLED_PERCENT: u32 = 60;
/// The latest moment of a cancellation, in microseconds, which is when the upstream begins to answer.
const MAX_WAIT_US: u64 = 40_000;
const LIMIT: u32 = 10;
/// Longer than the test: no permit expires.
const LEASE_TTL: Duration = Duration::from_secs(3_600);

/// The time after which a client cancels its request.
fn patience(random: &mut Rng) -> Duration {
    match random.u32(..100) < CANCELLED_PERCENT {
        true => Duration::from_micros(random.u64(..MAX_WAIT_US)),
        false => Duration::from_secs(30),
    }
}

/// Outcomes at the clients of the soak test.
#[derive(Debug, Default)]
struct Seen {
    begun: AtomicUsize,
    passed: AtomicUsize,
    denied: AtomicUsize,
    left: AtomicUsize,
}

async fn soak(port: u16, mut random: Rng, seen: Arc<Seen>) {
    while seen.begun.fetch_add(1, SeqCst) < REQUESTS {
        match timeout(patience(&mut random), get(port, Some("soak"))).await.map(|answer| answer.status()) {
            Ok(200) => seen.passed.fetch_add(1, SeqCst),
            Ok(429) => {
                sleep(Duration::from_millis(random.u64(10..40))).await;
                seen.denied.fetch_add(1, SeqCst)
            }
            Ok(other) => panic!("status {other}"),
            Err(_) => seen.left.fetch_add(1, SeqCst),
        };
    }
}

/// Runs the soak, with the seed in `SOAK_SEED` if there is one. The upstream sees a request that its client left end
/// when Envoy closes the connection, which it does before it gives the lease back.
async fn soak_with(store: &str, arguments: &[&str]) {
    let seed = env::var("SOAK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(fastrand::u64(..));
    println!("{store}: SOAK_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    // For the upstream, which is on this thread.
    fastrand::seed(random.u64(..));
    let tollgate = Tollgate::serving(
        &format!(
            "domain: concurrency\ndescriptors:\n- key: user\n  rate_limit: {{algorithm: concurrency, requests_per_unit: {LIMIT}, lease_ttl: {}s}}\n",
            LEASE_TTL.as_secs()
        ),
        arguments,
    );
    let upstream =
        Upstream::between(Duration::from_micros(MAX_WAIT_US), Duration::from_micros(MAX_WAIT_US + 20_000))
            .await;
    let envoy = Envoy::concurrency(tollgate.grpc_port, Some(upstream.port));
    let mut client = tollgate.client().await;

    let seen = Arc::new(Seen::default());
    let began = Instant::now();
    let clients: JoinSet<()> =
        (0..CLIENTS).map(|_| soak(envoy.port, random.fork(), Arc::clone(&seen))).collect();
    clients.join_all().await;
    let took = began.elapsed();
    until("it does not come about", async || held(&mut client, LIMIT, &[("user", "soak")]).await == 0).await;
    let metric = |series: &str| tollgate.metric(series).unwrap_or_default() as u64;
    let granted = metric(r#"tollgate_rule_within_limit_total{domain="concurrency",rule="user"}"#);
    // Every answer that was no denial either granted a place or was one to a lease given back.
    let released = metric(r#"tollgate_requests_total{result="ok"}"#) - granted;
    let taken_back = metric(r#"tollgate_refunds_total{result="success"}"#);
    println!(
        "{store}: {REQUESTS} requests in {took:.1?}: {} passed, {} denied, {} left by their client; tollgate granted \
         {granted} places of which Envoy gave {released} back; tollgate took \
         {taken_back} back by itself; at most {} at once in the upstream, which saw {}",
        seen.passed.load(SeqCst),
        seen.denied.load(SeqCst),
        seen.left.load(SeqCst),
        upstream.most(),
        upstream.served(),
    );
    assert!(upstream.most() <= LIMIT as usize, "{} at once", upstream.most());
    assert!(upstream.served() > LIMIT as usize, "there was something to limit");
    // Envoy has nothing to give back for an answer that it did not read.
    assert!(released >= granted / 2, "Envoy gave back {released} of {granted}");
    assert_eq!(
        statuses(&burst(envoy.port, Some("soak"), LIMIT as usize).join_all().await),
        [200; LIMIT as usize]
    );
}

#[tokio::test]
async fn cancelled_requests_never_exceed_the_limit() {
    let redis = Redis::start();
    soak_with("memory", &[]).await;
    soak_with("redis", &["--store", &redis.url(), "--store-timeout", "5s"]).await;
}
