//! How a server starts, follows its rules, and stops.

use super::*;

#[tokio::test]
async fn a_stop_waits_for_the_calls_in_flight_and_answers_them_all() {
    let mut stage = stage(GOOD, "--drain-timeout=60s", 0).await;
    let http = stage.running.http_address();
    let channels = join_all((0..4).map(|_| stage.connect())).await;
    let calls: Vec<_> =
        (0..40).map(|call: usize| tokio::spawn(ask(channels[call % channels.len()].clone()))).collect();
    for _ in 0..calls.len() {
        stage.begun.recv().await.expect("a call begins");
    }
    let GrpcListen::Tcp(grpc) = *stage.running.grpc_address() else { panic!("no port") };

    let readiness = stage.running.readiness().clone();
    let stopped = tokio::spawn(stage.running.stop());
    while readiness.phase() != Phase::Stopping || TcpStream::connect(grpc).is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(get(http, "/healthcheck").await.starts_with("HTTP/1.1 500"));
    assert!(!stopped.is_finished());

    stage.permits.add_permits(calls.len());
    for call in calls {
        assert_eq!(call.await.expect("asked"), Ok(()));
    }
    stopped.await.expect("stopped");
}

#[tokio::test]
async fn calls_that_outlast_the_drain_timeout_are_cut() {
    let mut stage = stage(GOOD, "--drain-timeout=20ms", 0).await;
    let call = tokio::spawn(ask(stage.connect().await));
    stage.begun.recv().await.expect("the call begins");
    stage.running.stop().await;
    assert!(call.await.expect("asked").is_err());
}

#[tokio::test]
async fn health_follows_the_rules_and_the_stop() {
    let stage = stage(BAD, "--start-without-rules", 0).await;
    let http = stage.running.http_address();
    let mut client = HealthClient::new(stage.connect().await);
    let request = HealthCheckRequest { service: "ratelimit".to_owned() };
    let mut watch = client.watch(request).await.expect("known").into_inner();
    let mut next = async || watch.message().await.expect("answered").map(|answer| answer.status());
    assert_eq!(next().await, Some(ServingStatus::NotServing));
    assert!(get(http, "/healthcheck").await.starts_with("HTTP/1.1 500"));

    write(stage.directory.path(), GOOD);
    assert_eq!(next().await, Some(ServingStatus::Serving));
    let healthy = get(http, "/healthcheck").await;
    assert!(healthy.starts_with("HTTP/1.1 200") && healthy.ends_with("\r\n\r\nOK"), "{healthy}");

    // The open watch does not hold up the stop.
    let stopped = tokio::spawn(stage.running.stop());
    assert_eq!(next().await, Some(ServingStatus::NotServing));
    assert_eq!(next().await, None);
    stopped.await.expect("stopped");
}

#[tokio::test]
async fn without_valid_rules_there_is_no_start() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), BAD);
    let error = Server::start(settings(directory.path(), ""), None).await.expect_err("refused");
    assert!(matches!(error, StartError::Rules(_)), "{error}");
}

#[tokio::test]
async fn a_store_that_cannot_be_opened_ends_the_start() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), GOOD);
    let refuse = |_: &_, _| Err::<Stub, _>(StoreError::Refused("no such file".to_owned()));
    let error = start_with(settings(directory.path(), ""), None, Readiness::new(), Later::default(), refuse)
        .await
        .expect_err("refused");
    assert!(matches!(error, StartError::Store(_)), "{error}");
}

#[tokio::test]
async fn a_worker_that_panics_is_noticed() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), GOOD);
    let (begin, _begun) = mpsc::unbounded_channel();
    let stub = Stub { permits: Arc::new(Semaphore::new(0)), begun: begin };
    let panic_in_worker_1 = move |_: &_, _| match thread::current().name() {
        Some("worker-1") => panic!("on purpose"),
        _ => Ok(stub.clone()),
    };
    let started = start_with(
        settings(directory.path(), ""),
        None,
        Readiness::new(),
        Later::default(),
        panic_in_worker_1,
    )
    .await;
    assert_eq!(started.expect_err("refused").to_string(), "worker 1 failed");
}

#[tokio::test]
async fn a_call_that_panics_is_noticed() {
    worker::raise_alarm_on_panics();
    // Nobody listens to what begins, over which the stub panics.
    let Stage { mut running, begun, .. } = {
        let mut stage = stage(GOOD, "", 0).await;
        stage.begun.close();
        let call = ask(stage.connect().await).await;
        assert!(call.is_err());
        stage
    };
    drop(begun);
    assert!(matches!(running.failed().await, running::Failed::Worker(_)));
    running.stop().await;
}
