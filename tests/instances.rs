//! Several instances on one Redis.

use crate::support::{prelude::*, redis::guarded};

const LIMIT: usize = 1_000;
const CLIENTS: usize = 64;

/// Two instances, 64 clients, twice as many requests as the limit: how many pass, counted by the clients.
async fn admitted(algorithm: &str, run: usize, redis: &Redis) -> usize {
    let config = rules(&format!(
        "domain: shared\ndescriptors:\n- key: run\n  rate_limit: {{algorithm: {algorithm}, unit: year, requests_per_unit: {LIMIT}}}\n"
    ));
    // A long time-out: a machine that is busy with other tests must not turn an answer into an error.
    let arguments = ["--store", &redis.url(), "--store-timeout", "10s", "--workers", "2"];
    let instances: Arc<[Tollgate; 2]> =
        Arc::new([Tollgate::start(config.path(), &arguments), Tollgate::start(config.path(), &arguments)]);
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let instances = Arc::clone(&instances);
        clients.spawn(async move {
            let mut client = instances[number % 2].client().await;
            let value = format!("{run}");
            let mut admitted = 0;
            for _ in 0..2 * LIMIT / CLIENTS + 1 {
                admitted += usize::from(client.passes("shared", &[("run", &value)]).await);
            }
            admitted
        });
    }
    clients.join_all().await.into_iter().sum()
}

#[tokio::test]
async fn two_instances_admit_exactly_the_limit_whatever_the_algorithm() {
    let redis = Redis::start();
    for run in 0..3 {
        assert_eq!(admitted("fixed_window", run, &redis).await, LIMIT, "fixed_window, run {run}");
        assert_eq!(admitted("token_bucket", run, &redis).await, LIMIT, "token_bucket, run {run}");
    }
}

#[tokio::test]
async fn a_flushed_script_is_loaded_again_and_an_absent_redis_is_an_error_and_no_denial() {
    let redis = Redis::start();
    let (tollgate, mut client) =
        Tollgate::serving_one(&yearly(5), &["--store", &redis.url(), "--store-timeout", "2s"]).await;
    for _ in 0..4 {
        assert!(client.passes("d", &[("k", "v")]).await);
        cmd("SCRIPT").arg("FLUSH").exec(&mut redis.connect()).expect("flushed");
    }
    drop(redis);
    let request = request("d", &[&[("k", "v")]]);
    let error = client.call(request).await.expect_err("no store, no answer");
    assert_eq!(error.code(), tonic::Code::Unavailable, "{error}");
    assert_eq!(tollgate.hit("d", &[("k", "v")]).status, 503);
}

#[tokio::test]
async fn a_unix_socket_and_a_password_lead_to_redis() {
    let redis = Redis::start();
    let arguments = ["--store", &redis.unix_url(), "--store-timeout", "2s", "--replicas-hint", "1"];
    let (_tollgate, mut client) = Tollgate::serving_one(&yearly(1), &arguments).await;
    assert!(client.passes("d", &[("k", "v")]).await);
    assert!(!client.passes("d", &[("k", "v")]).await);
    assert_eq!(cmd("KEYS").arg("{d*").query::<Vec<String>>(&mut redis.connect()).expect("keys"), ["{d|k=v}"]);

    let guarded =
        Redis::start_with(&["--user", "app", "on", ">pass%word", "~*", "+@all", "--user", "default", "off"]);
    let url = format!("redis://app:pass%25word@127.0.0.1:{}", guarded.port());
    let arguments = ["--store", &url, "--store-timeout", "2s", "--key-prefix", "p:"];
    let tollgate = Tollgate::serving(UNREACHED, &arguments);
    assert!(tollgate.client().await.passes("d", &[("k", "v")]).await);
}

/// Calls until one passes; a store that is back is found within seconds.
async fn recovers(client: &mut Client) -> Duration {
    until("it does not recover", async || client.call(request("d", &[&[("k", "v")]])).await.is_ok()).await
}

#[tokio::test]
async fn an_instance_that_never_reached_redis_is_not_ready() {
    let config = rules(UNREACHED);
    let port = free_port();
    let url = format!("redis://127.0.0.1:{port}");
    let tollgate = Tollgate::spawn(config.path(), &["--store", &url, "--store-timeout", "2s"]);
    wait("it does not listen", || http::try_get(&tollgate.url("/live")).is_some());
    assert_eq!(http::get(&tollgate.url("/healthcheck")).status, 500);
    let redis = Redis::start_on(port, &[]);
    tollgate.wait_until_ready();
    assert!(tollgate.client().await.passes("d", &[("k", "v")]).await);
    // An outage later on is met by each answer, not by taking the instance out.
    drop(redis);
    assert_eq!(http::get(&tollgate.url("/healthcheck")).status, 200);
}

#[tokio::test]
async fn a_demoted_redis_is_replaced_by_a_new_connection() {
    let (redis, master) = (Redis::start(), Redis::start());
    let arguments = ["--store", &redis.url(), "--store-timeout", "2s", "--workers", "1"];
    let (_tollgate, mut client) = Tollgate::serving_one(UNREACHED, &arguments).await;
    assert!(client.passes("d", &[("k", "v")]).await);
    let received = || redis.figure("stats", "total_connections_received");
    let before = received();
    cmd("REPLICAOF").arg("127.0.0.1").arg(master.port()).exec(&mut redis.connect()).expect("demoted");
    let error = client.call(request("d", &[&[("k", "v")]])).await.expect_err("it takes no writes");
    assert_eq!(error.code(), tonic::Code::Unavailable);
    // The looks themselves are connections: two before, and each from now on; the rest is tollgate's.
    let mut looks = 1.0;
    until("no new connection was made", async || {
        looks += 1.0;
        received() > before + looks
    })
    .await;
    cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut redis.connect()).expect("promoted");
    recovers(&mut client).await;
}

#[tokio::test]
async fn a_silent_redis_fails_calls_within_the_timeout_and_is_used_after_recovery() {
    let redis = Redis::start();
    let (_tollgate, mut client) =
        Tollgate::serving_one(UNREACHED, &["--store", &redis.url(), "--store-timeout", "50ms"]).await;
    assert!(client.passes("d", &[("k", "v")]).await);
    redis.signal("STOP");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        let error = client.call(request("d", &[&[("k", "v")]])).await.expect_err("nobody decides");
        assert_eq!(error.code(), tonic::Code::Unavailable);
        sleep(Duration::from_millis(20)).await;
    }
    redis.signal("CONT");
    recovers(&mut client).await;
}

#[tokio::test]
async fn records_of_an_unknown_algorithm_are_retained() {
    let redis = Redis::start();
    let subject = Subject::redis(redis.store());
    let policy = policy(Algorithm::FixedWindow, 10, 3_600);
    let mut checks: Vec<_> = (0..16).map(|number| (number, policy, Hits::ONE)).collect();
    checks[1].1 = crate::support::stores::policy(Algorithm::SlidingWindow, 10, 3_600);
    subject.decide(at(0), &call("a", &checks)).await;
    let mut cell: Vec<u8> = cmd("GET").arg("{test|name=a}").query(&mut redis.connect()).expect("a cell");
    // The kinds of two records become 7 and 10, of two words and of three; a seventeenth has the cell searched.
    cell[7 + 5] |= 7;
    cell[7 + 11] |= 10;
    cmd("SET").arg("{test|name=a}").arg(&cell).exec(&mut redis.connect()).expect("written");
    let verdicts =
        subject.decide(at(1), &call("a", &[(16, policy, Hits::ONE), (2, policy, Hits::ONE)])).await;
    assert_eq!((verdicts[0].remaining, verdicts[1].remaining), (9, 8));
    let after: Vec<u8> = cmd("GET").arg("{test|name=a}").query(&mut redis.connect()).expect("a cell");
    assert_eq!((after[1], &after[7..19]), (17, &cell[7..19]));
    let (before, after) = (&cell[7 + 16 * 6..][..16], &after[7 + 17 * 6..][..16]);
    assert_eq!(before, after, "their states");
}

#[tokio::test]
async fn the_documented_commands_suffice_for_every_algorithm() {
    let redis = Redis::start_with(&guarded("word", &[]));
    let url = format!("redis://app:word@127.0.0.1:{}", redis.port());
    let store = RedisStore::open(&RedisSettings { key_prefix: "guarded:".into(), ..settings(&url) });
    let subject = Subject::redis(store.expect("valid settings"));
    let one = NonZeroU64::MIN;
    let lease = LeaseId::random();
    for algorithm in Algorithm::ALL {
        let policy = policy(algorithm, 2, 60);
        let undo = Hits::RefundCharge { amount: one, made_at: at(60_000_000) };
        // Charged, denied, given back in every way; then a clock that steps back, and a window that is over.
        let checks = [Hits::Acquire { amount: one, lease }, Hits::ONE, Hits::ONE, Hits::refund(1), undo];
        for (hits, seconds) in checks.into_iter().chain([Hits::Release(lease), Hits::ONE]).zip([60; 7]) {
            subject.decide_one(at(seconds * 1_000_000), algorithm.name(), policy, hits).await;
        }
        for seconds in [30, 600] {
            subject.decide_one(at(seconds * 1_000_000), algorithm.name(), policy, Hits::ONE).await;
            subject.decide_one(at(seconds * 1_000_000), algorithm.name(), policy, Hits::reset()).await;
        }
    }
}

#[tokio::test]
async fn a_key_lives_for_as_long_as_its_counters_count() {
    let (redis, store) = Redis::start_store();
    for (algorithm, lives) in [
        (Algorithm::FixedWindow, 1..=60_000),
        (Algorithm::SlidingWindow, 60_000..=120_000),
        // A lifetime longer, in case that the lifetime is lengthened meanwhile.
        (Algorithm::SlidingWindowLog, 119_000..=120_000),
        (Algorithm::TokenBucket, 19_000..=21_000),
        (Algorithm::Concurrency, 659_000..=660_000),
    ] {
        let decide = async |seconds, hits| {
            let call = call(algorithm.name(), &[(0, policy(algorithm, 3, seconds), hits)]);
            store.decide(&call).await.expect("decides");
            let keys: Vec<String> = cmd("KEYS").arg("*").query(&mut redis.connect()).expect("keys");
            let left = |key| cmd("PTTL").arg(key).query::<i64>(&mut redis.connect()).expect("a time");
            keys.iter().map(left).collect::<Vec<_>>()
        };
        let left = decide(60, Hits::ONE).await;
        assert!(left.len() == 1 && lives.contains(&left[0]), "{}: {left:?}", algorithm.name());
        // A denial under a longer window lets the key live as long as that needs.
        if algorithm == Algorithm::SlidingWindowLog {
            let left = decide(3_600, Hits::charge(3)).await;
            assert!((7_190_000..=7_200_000).contains(&left[0]), "{left:?}");
        }
        assert!(decide(60, Hits::reset()).await.is_empty(), "{}", algorithm.name());
    }
    // One of two counters that ends sooner than before takes the key along.
    let check = |number, seconds, hits| (number, policy(Algorithm::FixedWindow, 3, seconds), hits);
    store
        .decide(&call("two", &[check(0, 1, Hits::ONE), check(1, 31_536_000, Hits::ONE)]))
        .await
        .expect("decides");
    store.decide(&call("two", &[check(1, 31_536_000, Hits::reset())])).await.expect("decides");
    let left: i64 = cmd("PTTL").arg("{test|name=two}").query(&mut redis.connect()).expect("a time");
    assert!(left <= 1_000, "{left}");
}
