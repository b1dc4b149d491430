use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream as Client},
};

use axum::{body::Bytes, routing::any};
use tokio::{sync::Notify, task::spawn_blocking};

use super::*;

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(60);

/// More than the system keeps for a client that reads nothing.
const MUCH: usize = 64 * 1024 * 1024;

struct Stage {
    address: SocketAddr,
    begun: Arc<Notify>,
    release: Arc<Notify>,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

async fn stage(limits: Limits) -> Stage {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let port = HttpPort::bind(Port::Http, loopback, None, limits).await.expect("a free port");
    let [begun, release] = [(); 2].map(|()| Arc::new(Notify::new()));
    let wait = {
        let (begun, release) = (Arc::clone(&begun), Arc::clone(&release));
        async move || {
            begun.notify_one();
            release.notified().await;
            "done"
        }
    };
    let router = Router::new()
        .route("/echo", any(async |body: Bytes| body))
        .route("/much", any(async || vec![b'x'; MUCH]))
        .route("/wait", any(wait));
    let (address, stop) = (port.address().expect("bound"), CancellationToken::new());
    let serving = tokio::spawn(port.serve(router, stop.clone()));
    Stage { address, begun, release, stop, serving }
}

fn limits() -> Limits {
    Limits { connections: 8, handshake: LONG, idle: LONG, age: LONG, request: LONG, patience: LONG }
}

/// What a client hears that says `text` and waits.
async fn say(address: SocketAddr, text: &'static str) -> String {
    let heard = spawn_blocking(move || {
        let mut client = Client::connect(address).expect("connected");
        client.write_all(text.as_bytes()).expect("sent");
        client.set_read_timeout(Some(LONG)).expect("set");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("closed in time");
        answer
    });
    heard.await.expect("no panic")
}

#[tokio::test]
async fn a_request_whose_head_does_not_come_is_not_waited_for() {
    let stage = stage(Limits { handshake: SHORT, ..limits() }).await;
    assert_eq!(say(stage.address, "").await, "");
    assert!(!say(stage.address, "GET /echo HTTP/1.1\r\nHost").await.contains("200"));
}

#[tokio::test]
async fn a_connection_may_be_idle_between_requests_for_some_time_and_grow_to_some_age() {
    const WHOLE: &str = "GET /echo HTTP/1.1\r\nHost: t\r\n\r\n";
    // A busy machine may take its time until the head comes.
    const HANDSHAKE: Duration = Duration::from_millis(500);
    for limits in [Limits { idle: HANDSHAKE * 2, ..limits() }, Limits { age: HANDSHAKE * 2, ..limits() }] {
        let stage = stage(Limits { handshake: HANDSHAKE, ..limits }).await;
        let begun = Instant::now();
        let answered = say(stage.address, WHOLE).await;
        assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
        assert!(begun.elapsed() >= HANDSHAKE * 2, "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_request_whose_body_does_not_come_is_answered_that_it_is_late() {
    let stage = stage(Limits { request: SHORT, ..limits() }).await;
    let begun = "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nhalf";
    let answer = say(stage.address, begun).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_closed() {
    let stage = stage(Limits { patience: SHORT, connections: 1, ..limits() }).await;
    let mut client = Client::connect(stage.address).expect("connected");
    client.write_all(b"GET /much HTTP/1.1\r\nHost: t\r\n\r\n").expect("sent");
    // Its place is free again, without its doing.
    let whole = "GET /echo HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    while !try_say(stage.address, whole).await.starts_with("HTTP/1.1 200") {
        tokio::task::yield_now().await;
    }
    drop(client);
}

#[tokio::test]
async fn a_client_that_reads_its_answer_slowly_gets_no_more_of_it_in_the_end() {
    let stage = stage(Limits { request: SHORT, ..limits() }).await;
    let read = spawn_blocking(move || {
        let mut client = Client::connect(stage.address).expect("connected");
        client.write_all(b"GET /much HTTP/1.1\r\nHost: t\r\n\r\n").expect("sent");
        let (mut read, mut buffer) = (0, vec![0; MUCH / 100]);
        // At this pace it takes several seconds.
        while let Ok(some @ 1..) = client.read(&mut buffer) {
            read += some;
            std::thread::sleep(SHORT);
        }
        read
    });
    assert!(read.await.expect("no panic") < MUCH / 2);
}

/// The same, for a client that may be closed before it said anything.
async fn try_say(address: SocketAddr, text: &'static str) -> String {
    let heard = spawn_blocking(move || {
        let mut client = Client::connect(address).expect("connected");
        let _ = client.write_all(text.as_bytes());
        let mut answer = String::new();
        let _ = client.read_to_string(&mut answer);
        answer
    });
    heard.await.expect("no panic")
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_the_others_served() {
    let stage = stage(Limits { connections: 2, ..limits() }).await;
    let waiting = spawn_blocking(move || {
        let mut client = Client::connect(stage.address).expect("connected");
        client.write_all(b"GET /wait HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        client.read_to_string(&mut answer).map(|_| answer)
    });
    stage.begun.notified().await;
    let idle = Client::connect(stage.address).expect("connected");
    assert_eq!(try_say(stage.address, "").await, "");
    stage.release.notify_one();
    assert!(waiting.await.expect("no panic").expect("an answer").ends_with("done"));
    idle.shutdown(Shutdown::Both).expect("closed");
    let whole = "GET /echo HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    while !try_say(stage.address, whole).await.starts_with("HTTP/1.1 200") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_stop_finishes_the_requests_that_have_begun_and_waits_for_no_others() {
    let stage = stage(limits()).await;
    let _idle = Client::connect(stage.address).expect("connected");
    let address = stage.address;
    let waiting = tokio::spawn(say(address, "GET /wait HTTP/1.1\r\nHost: t\r\n\r\n"));
    stage.begun.notified().await;
    stage.stop.cancel();
    while Client::connect(address).is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!stage.serving.is_finished());
    stage.release.notify_one();
    assert!(waiting.await.expect("no panic").ends_with("done"));
    stage.serving.await.expect("no panic");
}
