//! Starting and stopping.

use crate::support::{prelude::*, redis::hits};

/// Every hit that was charged was answered: the count in Redis is that of the clients. Prefetched tokens are refunded.
#[tokio::test]
async fn a_first_signal_loses_no_response_and_exits_with_success() {
    stop_under_load(UNREACHED).await;
    stop_under_load(&UNREACHED.replace("{unit", "{sync: leased, unit")).await;
}

async fn stop_under_load(yaml: &str) {
    let redis = Redis::start();
    let mut tollgate = Tollgate::serving(yaml, &["--store", &redis.url(), "--store-timeout", "5s"]);
    let mut clients = JoinSet::new();
    for _ in 0..16 {
        let mut client = tollgate.client().await;
        clients.spawn(async move {
            let mut answered = 0_u32;
            while client.call(request("d", &[&[("k", "v")]])).await.is_ok() {
                answered += 1;
            }
            answered
        });
    }
    sleep(Duration::from_millis(500)).await;
    tollgate.signal("TERM");
    let answered: u32 = clients.join_all().await.into_iter().sum();
    assert_eq!(tollgate.wait(), Some(0));
    assert!(answered > 0, "no call was answered");
    let cell: Vec<u8> = cmd("GET").arg("{d|k=v}").query(&mut redis.connect()).expect("the cell");
    assert_eq!(hits(&cell), answered);
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    let redis = Redis::start();
    let (mut tollgate, mut client) =
        Tollgate::serving_one(UNREACHED, &["--store", &redis.url(), "--store-timeout", "60s"]).await;
    assert!(client.passes("d", &[("k", "v")]).await);
    // A call that would take a minute holds up the end.
    cmd("CLIENT").arg("PAUSE").arg(60_000).exec(&mut redis.connect()).expect("paused");
    let call = tokio::spawn(async move { client.call(request("d", &[&[("k", "v")]])).await });
    let is_sent = || {
        let page = tollgate.metrics();
        !page.lines().any(|line| line == "tollgate_redis_calls_in_flight 0")
    };
    while !is_sent() {
        sleep(Duration::from_millis(10)).await;
    }
    tollgate.signal("TERM");
    // Two signals that are pending at once are one.
    while http::get(&tollgate.url("/healthcheck")).status != 500 {
        sleep(Duration::from_millis(10)).await;
    }
    let begun = Instant::now();
    tollgate.signal("TERM");
    assert_eq!(tollgate.wait(), Some(143));
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(call.await.expect("no panic").is_err());
}

/// While health checks fail already, callers that did not notice yet are served, new ones too.
#[tokio::test]
async fn a_drain_delay_serves_until_a_second_signal() {
    let mut tollgate = Tollgate::serving(UNREACHED, &["--drain-delay", "60s"]);
    tollgate.signal("TERM");
    wait("the failing health check does not come about", || {
        http::get(&tollgate.url("/healthcheck")).status == 500
    });
    assert_eq!(http::get(&tollgate.url("/live")).status, 200);
    assert!(tollgate.client().await.passes("d", &[("k", "v")]).await);
    let begun = Instant::now();
    tollgate.signal("TERM");
    assert_eq!(tollgate.wait(), Some(143));
    assert!(begun.elapsed() < Duration::from_secs(30));
}

/// Rules that take longer to load than a signal to arrive.
fn many_rules() -> TempDir {
    let mut yaml = "domain: d\ndescriptors:\n".to_owned();
    for key in 0..60_000 {
        yaml += &format!("- {{key: k{key}, rate_limit: {{unit: year, requests_per_unit: 1}}}}\n");
    }
    rules(&yaml)
}

#[test]
fn a_signal_during_the_start_ends_it() {
    let config = many_rules();
    let mut tollgate = Tollgate::spawn_logging(command(), config.path(), &[]);
    wait("the ear for signals does not come about", || tollgate.handles_terminate());
    tollgate.signal("TERM");
    assert_eq!(tollgate.wait(), Some(0));
    let text = tollgate.log();
    assert!(text.contains("SIGTERM") && !text.contains("tollgate started"), "{text}");
}

/// A port in use, an invalid token, and a port open to every client.
#[test]
fn unsupported_admin_settings_stop_the_start_and_name_the_flag() {
    let config = rules(UNREACHED);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("bound").to_string();
    let none = config.path().join("no-token").display().to_string();
    for (flags, code, flag) in [
        (&["--admin-address", &taken][..], 1, "--admin-address"),
        (&["--admin-address", "127.0.0.1:0", "--admin-token-file", &none], 1, "--admin-token-file"),
        (&["--admin-address", "0.0.0.0:0"], 2, "--admin-token-file"),
    ] {
        let mut serve = command();
        serve.args(["serve", "--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"]);
        let ended = ended(serve.arg("--config").arg(config.path()).args(flags));
        assert!(ended.code == Some(code) && ended.stderr.contains(flag), "{ended:?}");
    }
}

/// Out of file descriptors, it neither ends nor fills the log, serves its open connections, and accepts again later.
#[tokio::test]
async fn accepting_waits_when_file_descriptors_run_out() {
    let config = rules(UNREACHED);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""]).arg(command().get_program());
    let tollgate = Tollgate::spawn_logging(limited, config.path(), &["--workers", "1"]);
    tollgate.wait_until_ready();
    let mut client = tollgate.client().await;
    assert!(client.passes("d", &[("k", "v")]).await);
    let connect = || TcpStream::connect(("127.0.0.1", tollgate.grpc_port)).expect("the backlog has room");
    let idle: Vec<_> = (0..80).map(|_| connect()).collect();
    let warnings = || tollgate.logged("cannot accept connections").len();
    wait("a warning does not come about", || warnings() == 1);
    for _ in 0..20 {
        assert!(client.passes("d", &[("k", "v")]).await);
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(warnings(), 1);
    drop(idle);
    assert!(tollgate.client().await.passes("d", &[("k", "v")]).await);
}

#[test]
fn bad_rules_stop_the_start_with_a_report() {
    let config =
        rules("domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: fortnight, requests_per_unit: 1}\n");
    let Ended { code, stderr: report, .. } = ended(command().arg("serve").arg("--config").arg(config.path()));
    assert_eq!(code, Some(1));
    assert!(report.contains("rules.yaml:4") && report.contains("fortnight"), "{report}");
}

#[test]
fn without_rules_it_can_start_and_becomes_ready_with_them() {
    let config = rules("domain: [");
    let tollgate = Tollgate::spawn(config.path(), &["--start-without-rules"]);
    let answer = find("it does not listen", || http::try_get(&tollgate.url("/healthcheck")));
    assert_eq!(answer.status, 500);
    assert_eq!(tollgate.hit("d", &[("k", "v")]).status, 503);
    fs::write(config.path().join("rules.yaml"), UNREACHED).expect("writable");
    tollgate.wait_until_ready();
    assert_eq!(tollgate.hit("d", &[("k", "v")]).status, 200);
}

#[test]
fn an_unknown_tollgate_variable_stops_the_start_and_is_named() {
    let ended = ended(command().env("TOLLGATE_GRPC_ADRESS", "1").arg("serve"));
    assert!(ended.code == Some(2) && ended.stderr.contains("TOLLGATE_GRPC_ADRESS"), "{ended:?}");
}

#[tokio::test]
async fn a_hang_up_reads_the_rules_again_and_stops_nothing() {
    let mut tollgate = Tollgate::serving(UNREACHED, &[]);
    let loads = || {
        let page = tollgate.metrics();
        let line =
            page.lines().find(|line| line.starts_with("tollgate_config_loads_total{result=\"success\"}"));
        line.expect("the metric").to_owned()
    };
    let before = loads();
    tollgate.signal("HUP");
    wait("another load does not come about", || loads() != before);
    assert!(tollgate.client().await.passes("d", &[("k", "v")]).await);
    tollgate.signal("TERM");
    assert_eq!(tollgate.wait(), Some(0));
}
