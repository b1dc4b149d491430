use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream as Client},
};

use axum::{body::Bytes, routing::any};
use tokio::{sync::Notify, task::spawn_blocking};

use super::*;

const SHORT_TIMEOUT: Duration = Duration::from_millis(100);
const LONG_TIMEOUT: Duration = Duration::from_secs(60);

/// More than the socket buffers of a client that does not read.
const LARGE_BYTES: usize = 64 * 1024 * 1024;

struct TestServer {
    address: SocketAddr,
    started: Arc<Notify>,
    release: Arc<Notify>,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

async fn serve(limits: ConnectionLimits) -> TestServer {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let port = HttpPort::bind(Port::Http, loopback, None, limits).await.expect("a free port");
    let [started, release] = [(); 2].map(|()| Arc::new(Notify::new()));
    let wait = {
        let (started, release) = (Arc::clone(&started), Arc::clone(&release));
        async move || {
            started.notify_one();
            release.notified().await;
            "done"
        }
    };
    let router = Router::new()
        .route("/echo", any(async |body: Bytes| body))
        .route("/large", any(async || vec![b'x'; LARGE_BYTES]))
        .route("/wait", any(wait));
    let (address, stop) = (port.address().expect("bound"), CancellationToken::new());
    let serving = tokio::spawn(port.serve(router, stop.clone()));
    TestServer { address, started, release, stop, serving }
}

fn limits() -> ConnectionLimits {
    ConnectionLimits {
        connections: 8,
        handshake: LONG_TIMEOUT,
        idle: LONG_TIMEOUT,
        max_age: LONG_TIMEOUT,
        request: LONG_TIMEOUT,
        stall: LONG_TIMEOUT,
    }
}

/// Sends `text` and returns all that the server sends until it closes the connection.
async fn send(address: SocketAddr, text: &'static str) -> String {
    let received = spawn_blocking(move || {
        let mut client = Client::connect(address).expect("connected");
        client.write_all(text.as_bytes()).expect("sent");
        client.set_read_timeout(Some(LONG_TIMEOUT)).expect("set");
        let mut response = String::new();
        client.read_to_string(&mut response).expect("closed in time");
        response
    });
    received.await.expect("no panic")
}

#[tokio::test]
async fn a_connection_without_a_request_head_is_closed() {
    let server = serve(ConnectionLimits { handshake: SHORT_TIMEOUT, ..limits() }).await;
    assert_eq!(send(server.address, "").await, "");
    assert!(!send(server.address, "GET /echo HTTP/1.1\r\nHost").await.contains("200"));
}

#[tokio::test]
async fn connections_are_closed_by_idle_timeout_and_maximum_age() {
    const WHOLE: &str = "GET /echo HTTP/1.1\r\nHost: t\r\n\r\n";
    // Long enough for a busy machine to receive the head.
    const HANDSHAKE: Duration = Duration::from_millis(500);
    for limits in [
        ConnectionLimits { idle: HANDSHAKE * 2, ..limits() },
        ConnectionLimits { max_age: HANDSHAKE * 2, ..limits() },
    ] {
        let server = serve(ConnectionLimits { handshake: HANDSHAKE, ..limits }).await;
        let started = Instant::now();
        let response = send(server.address, WHOLE).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        assert!(started.elapsed() >= HANDSHAKE * 2, "{:?}", started.elapsed());
    }
}

#[tokio::test]
async fn a_request_whose_body_does_not_arrive_gets_408() {
    let server = serve(ConnectionLimits { request: SHORT_TIMEOUT, ..limits() }).await;
    let started = "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nhalf";
    let response = send(server.address, started).await;
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let server = serve(ConnectionLimits { stall: SHORT_TIMEOUT, connections: 1, ..limits() }).await;
    let mut client = Client::connect(server.address).expect("connected");
    client.write_all(b"GET /large HTTP/1.1\r\nHost: t\r\n\r\n").expect("sent");
    // The server frees its slot, although the client did not disconnect.
    let whole = "GET /echo HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    while !try_send(server.address, whole).await.starts_with("HTTP/1.1 200") {
        tokio::task::yield_now().await;
    }
    drop(client);
}

#[tokio::test]
async fn a_slow_reader_is_disconnected_at_the_deadline() {
    let server = serve(ConnectionLimits { request: SHORT_TIMEOUT, ..limits() }).await;
    let read = spawn_blocking(move || {
        let mut client = Client::connect(server.address).expect("connected");
        client.write_all(b"GET /large HTTP/1.1\r\nHost: t\r\n\r\n").expect("sent");
        let (mut read, mut buffer) = (0, vec![0; LARGE_BYTES / 100]);
        // At this rate the whole response would take several seconds.
        while let Ok(some @ 1..) = client.read(&mut buffer) {
            read += some;
            std::thread::sleep(SHORT_TIMEOUT);
        }
        read
    });
    assert!(read.await.expect("no panic") < LARGE_BYTES / 2);
}

/// Like `send`, for a connection that the server may close at any time.
async fn try_send(address: SocketAddr, text: &'static str) -> String {
    let received = spawn_blocking(move || {
        let mut client = Client::connect(address).expect("connected");
        let _ = client.write_all(text.as_bytes());
        let mut response = String::new();
        let _ = client.read_to_string(&mut response);
        response
    });
    received.await.expect("no panic")
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed() {
    let server = serve(ConnectionLimits { connections: 2, ..limits() }).await;
    let waiting = spawn_blocking(move || {
        let mut client = Client::connect(server.address).expect("connected");
        client.write_all(b"GET /wait HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").expect("sent");
        let mut response = String::new();
        client.read_to_string(&mut response).map(|_| response)
    });
    server.started.notified().await;
    let idle = Client::connect(server.address).expect("connected");
    assert_eq!(try_send(server.address, "").await, "");
    server.release.notify_one();
    assert!(waiting.await.expect("no panic").expect("an response").ends_with("done"));
    idle.shutdown(Shutdown::Both).expect("closed");
    let whole = "GET /echo HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    while !try_send(server.address, whole).await.starts_with("HTTP/1.1 200") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_stop_completes_requests_in_flight_and_waits_for_no_others() {
    let server = serve(limits()).await;
    let _idle = Client::connect(server.address).expect("connected");
    let address = server.address;
    let waiting = tokio::spawn(send(address, "GET /wait HTTP/1.1\r\nHost: t\r\n\r\n"));
    server.started.notified().await;
    server.stop.cancel();
    while Client::connect(address).is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!server.serving.is_finished());
    server.release.notify_one();
    assert!(waiting.await.expect("no panic").ends_with("done"));
    server.serving.await.expect("no panic");
}
