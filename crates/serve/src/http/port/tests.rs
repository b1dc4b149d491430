use std::io::{Read as _, Write as _};
use std::{net::TcpStream as Client, time::Instant};

use axum::{body::Bytes, routing::any};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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
        .route("/live", any(async || "alive"))
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
    let (response, end) = try_send(address, text).await;
    end.expect("sent, and closed in time");
    response
}

/// Like [`send`], also from a server that closes without reading all, which resets the connection.
async fn try_send(address: SocketAddr, text: &'static str) -> (String, io::Result<usize>) {
    let received = spawn_blocking(move || {
        let mut client = Client::connect(address).expect("connected");
        client.set_read_timeout(Some(LONG_TIMEOUT)).expect("set");
        let sent = client.write_all(text.as_bytes());
        let mut response = String::new();
        let end = client.read_to_string(&mut response);
        (response, sent.and(end))
    });
    received.await.expect("no panic")
}

fn is_whole((response, end): &(String, io::Result<usize>)) -> bool {
    response.starts_with("HTTP/1.1 200") && end.is_ok()
}

#[tokio::test]
async fn a_connection_without_a_request_head_is_closed() {
    let server = serve(ConnectionLimits { handshake: SHORT_TIMEOUT, ..limits() }).await;
    assert_eq!(send(server.address, "").await, "");
    assert!(!send(server.address, "GET /echo HTTP/1.1\r\nHost").await.contains("200"));
}

#[tokio::test]
async fn connections_are_closed_by_idle_timeout_and_maximum_age() {
    const KEPT: &str = "GET /echo HTTP/1.1\r\nHost: t\r\n\r\n";
    // Long enough for a busy machine to receive the head.
    const HANDSHAKE: Duration = Duration::from_millis(500);
    for limits in [
        ConnectionLimits { idle: HANDSHAKE * 2, ..limits() },
        ConnectionLimits { max_age: HANDSHAKE * 2, ..limits() },
    ] {
        let server = serve(ConnectionLimits { handshake: HANDSHAKE, ..limits }).await;
        let started = Instant::now();
        let response = send(server.address, KEPT).await;
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
    while !is_whole(&try_send(server.address, WHOLE).await) {
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

const WHOLE: &str = "GET /echo HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
const PROBE: &str = "GET /live HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";

const FINISHED: &str =
    "POST /echo HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 9\r\n\r\nhalf body";

/// Begins a request whose body does not arrive.
const UNFINISHED: &[u8] = b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nhalf";

/// Sends the request of a test that has the server wait.
async fn connect_and_wait(server: &TestServer) -> TcpStream {
    let mut client = TcpStream::connect(server.address).await.expect("connected");
    client.write_all(b"GET /wait HTTP/1.1\r\nHost: t\r\n\r\n").await.expect("sent");
    server.started.notified().await;
    client
}

/// Asserts that such a request is answered once the server waits no longer.
async fn assert_answered(server: &TestServer, mut client: TcpStream) {
    server.release.notify_one();
    let mut response = [0; 12];
    client.read_exact(&mut response).await.expect("not closed");
    assert_eq!(&response, b"HTTP/1.1 200");
}

/// Waits until the server closes the connection, and returns what it sent.
async fn read_all(mut client: TcpStream) -> String {
    let mut response = String::new();
    let _ = client.read_to_string(&mut response).await;
    response
}

#[tokio::test]
async fn a_new_connection_at_the_limit_takes_the_place_of_the_longest_idle_one() {
    let server = serve(ConnectionLimits { connections: 3, ..limits() }).await;
    let busy = connect_and_wait(&server).await;
    // One that is idle after a request, and one that has sent only a part of its first.
    let mut used = TcpStream::connect(server.address).await.expect("connected");
    used.write_all(b"GET /live HTTP/1.1\r\nHost: t\r\n\r\n").await.expect("sent");
    let mut response = [0; 15];
    used.read_exact(&mut response).await.expect("answered");
    let mut started = TcpStream::connect(server.address).await.expect("connected");
    started.write_all(b"GET /live HTTP/1.1\r\nHo").await.expect("sent");
    assert!(send(server.address, PROBE).await.ends_with("alive"));
    assert!(read_all(used).await.ends_with("alive"), "closed, after the rest of its response");
    assert!(send(server.address, WHOLE).await.starts_with("HTTP/1.1 200"), "the probe's place is free");
    let _new = TcpStream::connect(server.address).await.expect("connected");
    assert!(send(server.address, PROBE).await.ends_with("alive"));
    assert_eq!(read_all(started).await, "");
    assert_answered(&server, busy).await;
}

#[tokio::test]
async fn a_connection_at_a_limit_of_busy_ones_is_closed() {
    let server = serve(ConnectionLimits { connections: 2, ..limits() }).await;
    let busy = [connect_and_wait(&server).await, connect_and_wait(&server).await];
    let (response, end) = try_send(server.address, PROBE).await;
    assert_eq!(response, "");
    assert!(!end.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock), "closed in time");
    for _ in &busy {
        server.release.notify_one();
    }
    // A slot is free once a response is complete.
    while !is_whole(&try_send(server.address, WHOLE).await) {
        tokio::task::yield_now().await;
    }
}

/// More connections than the limit, as a client would open that fails the probes of a pod.
#[tokio::test]
async fn idle_and_slow_connections_above_the_default_limit_keep_no_client_out() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("raised");
    let limits = ConnectionLimits { request: LONG_TIMEOUT, ..ConnectionLimits::new(LONG_TIMEOUT) };
    let server = serve(limits).await;
    let busy = connect_and_wait(&server).await;
    let mut clients = Vec::new();
    for number in 0..1_100 {
        let mut client = TcpStream::connect(server.address).await.expect("connected");
        // Some send nothing, some an unfinished head, and some had a response.
        let sent: &[u8] = match number % 3 {
            0 => b"",
            1 => b"GET /live HTTP/1.1\r\nX: ",
            _ => b"GET /live HTTP/1.1\r\nHost: t\r\n\r\n",
        };
        client.write_all(sent).await.expect("sent");
        clients.push(client);
    }
    assert!(send(server.address, PROBE).await.ends_with("alive"));
    // The same with bodies that do not arrive: more than there is room for requests.
    for _ in 0..1_100 {
        let mut client = TcpStream::connect(server.address).await.expect("connected");
        let _ = client.write_all(UNFINISHED).await;
        clients.push(client);
    }
    assert!(send(server.address, PROBE).await.ends_with("alive"));
    for _ in 0..20 {
        let response = send(server.address, WHOLE).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        let response = send(server.address, FINISHED).await;
        assert!(response.ends_with("half body"), "{response}");
    }
    assert_answered(&server, busy).await;
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
