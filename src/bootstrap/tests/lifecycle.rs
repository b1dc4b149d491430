//! Startup, reload and shutdown of a server.

use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tollgate_runtime::panics;

use super::*;

#[tokio::test]
async fn a_stop_waits_for_the_calls_in_flight_and_answers_them_all() {
    let mut stage = stage(GOOD, "--drain-timeout=60s", 0).await;
    let http = stage.running.address(Port::Http).expect("an HTTP port");
    let channels = join_all((0..4).map(|_| stage.connect())).await;
    let calls: Vec<_> =
        (0..40).map(|call: usize| tokio::spawn(decide(channels[call % channels.len()].clone()))).collect();
    for _ in 0..calls.len() {
        stage.begun.recv().await.expect("a call begins");
    }
    let GrpcListen::Tcp(grpc) = stage.running.grpc_address else { panic!("no port") };

    let readiness = stage.running.instance.readiness.clone();
    let stopped = tokio::spawn(stage.running.stop());
    while readiness.phase() != Phase::Stopping || TcpStream::connect(grpc).is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(get(http, "/healthcheck").await.starts_with("HTTP/1.1 500"));
    assert!(!stopped.is_finished());

    stage.permits.add_permits(calls.len());
    for call in calls {
        assert_eq!(call.await.expect("no panic"), Ok(()));
    }
    stopped.await.expect("stopped");
}

#[tokio::test]
async fn the_drain_delay_fails_health_checks_and_serves_all_else() {
    let mut stage = stage(GOOD, "--drain-delay=4s", 10_000).await;
    let http = stage.running.address(Port::Http).expect("an HTTP port");
    let old = stage.connect().await;
    let address = stage.running.grpc_address.clone();
    let drain_began = tokio::time::Instant::now();
    let draining = stage.running.begin_drain();
    let callers = async {
        while !get(http, "/healthcheck").await.starts_with("HTTP/1.1 500") {}
        assert_eq!(decide(old.clone()).await, Ok(()));
        // New connections are accepted too.
        assert_eq!(decide(connect(&address).await).await, Ok(()));
        assert!(drain_began.elapsed() < Duration::from_secs(4), "the machine is too slow for this test");
    };
    let (failed, ()) = tokio::join!(draining, callers);
    assert_eq!(failed, None);
    assert!(drain_began.elapsed() >= Duration::from_secs(4));
    stage.running.stop().await;
    assert!(decide(old).await.is_err());
}

#[tokio::test]
async fn http_requests_have_the_same_drain_timeout_as_grpc_calls() {
    let mut stage = stage(GOOD, "--drain-timeout=60s", 0).await;
    let http = stage.running.address(Port::Http).expect("an HTTP port");
    let request = format!("POST /json HTTP/1.1\r\n{JSON_HEADERS}{CLOSE_HEADERS}{{\"domain\": \"d\"}}");
    let fetched = tokio::spawn(fetch(http, request));
    stage.begun.recv().await.expect("the request begins");
    let stopped = tokio::spawn(stage.running.stop());
    // Longer than the rest of the shutdown takes.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(!stopped.is_finished());
    stage.permits.add_permits(1);
    let response = fetched.await.expect("no panic");
    // The response of the stub.
    assert!(response.ends_with("\r\n\r\n{}"), "{response}");
    stopped.await.expect("stopped");
}

#[tokio::test]
async fn calls_that_exceed_the_drain_timeout_are_aborted() {
    let mut stage = stage(GOOD, "--drain-timeout=20ms", 0).await;
    let call = tokio::spawn(decide(stage.connect().await));
    stage.begun.recv().await.expect("the call begins");
    stage.running.stop().await;
    assert!(call.await.expect("no panic").is_err());
}

#[tokio::test]
async fn health_reflects_the_rules_and_the_shutdown() {
    let stage = stage(BAD, "--start-without-rules", 0).await;
    let http = stage.running.address(Port::Http).expect("an HTTP port");
    let mut client = HealthClient::new(stage.connect().await);
    let request = HealthCheckRequest { service: "ratelimit".to_owned() };
    let mut watch = client.watch(request).await.expect("known").into_inner();
    let mut next = async || watch.message().await.expect("answered").map(|response| response.status());
    assert_eq!(next().await, Some(ServingStatus::NotServing));
    assert!(get(http, "/healthcheck").await.starts_with("HTTP/1.1 500"));

    write(stage.directory.path(), GOOD);
    assert_eq!(next().await, Some(ServingStatus::Serving));
    let healthy = get(http, "/healthcheck").await;
    assert!(healthy.starts_with("HTTP/1.1 200") && healthy.ends_with("\r\n\r\nOK"), "{healthy}");

    // The open watch does not delay the shutdown.
    let stopped = tokio::spawn(stage.running.stop());
    assert_eq!(next().await, Some(ServingStatus::NotServing));
    assert_eq!(next().await, None);
    stopped.await.expect("stopped");
}

#[tokio::test]
async fn startup_fails_without_valid_rules() {
    let (_directory, settings) = prepared(BAD, "");
    let error = start::start(settings, None).await.err().expect("refused");
    assert!(matches!(error, StartError::Rules(_)), "{error}");
}

#[tokio::test]
async fn startup_fails_if_the_store_cannot_be_opened() {
    let (_directory, settings) = prepared(GOOD, "");
    let refuse: OpenService<Stub> = Arc::new(|_, _| Err(StoreError::Refused("no such file".to_owned())));
    let error = start_with(settings, None, |_| refuse).await.err().expect("refused");
    assert!(matches!(error, StartError::Store(_)), "{error}");
}

#[tokio::test]
async fn a_panic_of_a_worker_is_reported() {
    let (_directory, settings) = prepared(GOOD, "");
    let (stub, _begun) = Stub::new();
    let panic_in_worker_1: OpenService<_> = Arc::new(move |_, _| match thread::current().name() {
        Some("worker-1") => panic!("on purpose"),
        _ => Ok(stub.clone()),
    });
    let started = start_with(settings, None, |_| panic_in_worker_1).await;
    assert_eq!(started.err().expect("refused").to_string(), "worker 1 failed");
}

#[tokio::test]
async fn a_panic_in_one_call_is_an_internal_error_of_that_call_only() {
    panics::install_hook(metrics::panicked);
    let mut stage = stage(GOOD, "", 0).await;
    let waiting = tokio::spawn(decide(stage.connect().await));
    stage.begun.recv().await.expect("the call begins");
    // The stub panics when it cannot report that a call began.
    stage.begun.close();
    let channels = [stage.connect().await, stage.connect().await];
    for channel in channels.iter().cycle().take(6) {
        assert_eq!(decide(channel.clone()).await, Err(Code::Internal));
    }
    let http = stage.running.address(Port::Http).expect("an HTTP port");
    let request = "{\"domain\": \"d\"}";
    let response =
        fetch(http, format!("POST /json HTTP/1.1\r\n{JSON_HEADERS}{CLOSE_HEADERS}{request}")).await;
    assert!(response.starts_with("HTTP/1.1 500"), "{response}");
    assert!(get(http, "/healthcheck").await.starts_with("HTTP/1.1 200"));
    assert!(stage.running.components.failed().now_or_never().is_none());
    stage.permits.add_permits(1);
    assert_eq!(waiting.await.expect("no panic"), Ok(()));
    stage.running.stop().await;
}

/// For example in a task that drives a connection to the store.
#[tokio::test]
async fn a_panic_in_a_shared_task_is_reported() {
    panics::install_hook(metrics::panicked);
    let (_directory, settings) = prepared(GOOD, "");
    let (stub, _begun) = Stub::new();
    for (part, failure) in [("worker-1", "worker 1 failed"), ("http", "a background task panicked")] {
        let fail = Arc::new(Notify::new());
        let (stub, failing, test) = (stub.clone(), Arc::clone(&fail), thread::current().id());
        let open: OpenService<_> = Arc::new(move |_, _| {
            let failing = Arc::clone(&failing);
            let is_http = thread::current().id() == test;
            if is_http && part == "http" || thread::current().name() == Some(part) {
                tokio::spawn(async move {
                    failing.notified().await;
                    panic!("on purpose");
                });
            }
            Ok(stub.clone())
        });
        let mut running = start_with(settings.clone(), None, |_| open).await.expect("started");
        assert!(running.components.failed().now_or_never().is_none());
        fail.notify_one();
        assert_eq!(running.components.failed().await.to_string(), failure, "{part}");
        running.stop().await;
    }
}

/// For example in a task that reloads rules, spawned before all others.
#[tokio::test]
async fn a_panic_during_startup_is_reported_after_it() {
    panics::install_hook(metrics::panicked);
    let (_directory, settings) = prepared(GOOD, "");
    let (stub, _begun) = Stub::new();
    // The panic happens while startup waits for the rules, or at once after it if the rules were there already.
    let first = tokio::spawn(async { panic!("on purpose") });
    let started = start_with(settings, None, |_| stub.opener());
    let mut running = started.await.expect("started");
    assert!(first.await.is_err_and(|error| error.is_panic()));
    assert_eq!(running.components.failed().now_or_never(), Some(ComponentFailure::Panic));
    running.stop().await;
}
