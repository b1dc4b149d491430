//! Accepting, balancing and serving of connections.

use std::future::poll_fn;

use bytes::Bytes;
use h2::{Reason, client::SendRequest};

use super::*;

#[tokio::test]
async fn connections_are_balanced_over_the_workers() {
    let mut stage = stage(GOOD, "", 100).await;
    let channels = join_all((0..6).map(|_| stage.connect())).await;
    for answer in join_all(channels.into_iter().map(decide)).await {
        assert_eq!(answer, Ok(()));
    }
    let mut workers = Vec::new();
    stage.begun.recv_many(&mut workers, 6).await;
    workers.sort_unstable();
    assert_eq!(workers, [["worker-0"; 3], ["worker-1"; 3]].concat());
    stage.running.stop().await;
}

#[tokio::test]
async fn instances_run_side_by_side_on_ports_and_sockets() {
    let (_directory, socket) = temporary_file("grpc.sock");
    let on_port = stage(GOOD, "", 1).await;
    let on_socket = stage(GOOD, &format!("--grpc-address=unix:{}", socket.display()), 1).await;
    assert_eq!(decide(on_port.connect().await).await, Ok(()));
    assert_eq!(decide(on_socket.connect().await).await, Ok(()));
    on_port.running.stop().await;
    let http = on_socket.running.address(Port::Http).expect("an HTTP port");
    assert!(get(http, "/healthcheck").await.starts_with("HTTP/1.1 200"));
    on_socket.running.stop().await;
    assert!(!socket.exists());
}

/// Types of the frames that the server sends until it closes the connection.
fn frames_until_the_end(address: SocketAddr) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.write_all(HTTP2_START).expect("sent");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("closed");
    let mut types = Vec::new();
    let mut rest = bytes.as_slice();
    while let [a, b, c, kind, after @ ..] = rest {
        types.push(*kind);
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        rest = after.get(length.saturating_add(5)..).unwrap_or_default();
    }
    types
}

#[tokio::test]
async fn a_connection_past_its_maximum_age_gets_goaway_and_is_closed() {
    const GOAWAY: u8 = 7;
    let flags = "--grpc-max-connection-age=20ms --grpc-max-connection-age-grace=20ms";
    let stage = stage(GOOD, flags, 0).await;
    let address = tcp(&stage);
    // The client does not respond, so only the grace period ends the connection.
    let frames = spawn_blocking(move || frames_until_the_end(address)).await.expect("read");
    assert!(frames.contains(&GOAWAY), "{frames:?}");
    stage.running.stop().await;
}

fn tcp(stage: &TestServer) -> SocketAddr {
    match stage.running.grpc_address {
        GrpcListen::Tcp(address) => address,
        GrpcListen::Unix(_) => panic!("no port"),
    }
}

#[tokio::test]
async fn a_connection_beyond_the_limit_takes_the_place_of_the_longest_idle_one() {
    let stage = stage(GOOD, "--max-connections=2", 100).await;
    let mut first = client(&stage).await;
    let mut second = client(&stage).await;
    for client in [&mut second, &mut first] {
        call(client).await.expect("answered");
    }
    // The second one has had no call for longer.
    let silent = [(); 2].map(|()| TcpStream::connect(tcp(&stage)).expect("connected"));
    while poll_fn(|cx| second.poll_ready(cx)).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let mut answered = 2;
    let refusal = loop {
        match call(&mut first).await {
            Ok(()) => answered += 1,
            Err(error) => break error,
        }
    };
    // A call that crosses GOAWAY on the wire is not begun, and its client may send it again.
    assert!(refusal.is_go_away() && refusal.reason() == Some(Reason::NO_ERROR), "{refusal}");
    assert_eq!(stage.begun.len(), answered, "no call is lost");
    for _ in 0..10 {
        assert_eq!(decide(stage.connect().await).await, Ok(()));
    }
    drop(silent);
    stage.running.stop().await;
}

#[tokio::test]
async fn connections_with_a_call_in_progress_are_not_closed_for_others() {
    let stage = stage(GOOD, "--max-connections=2", 100).await;
    let mut busy = [client(&stage).await, client(&stage).await];
    let mut open = Vec::new();
    for client in &mut busy {
        let (response, body) = client.send_request(post(CALL_URL), false).expect("open");
        open.push((response, body));
        // Its own round trip, after which the server has the call.
        call(client).await.expect("answered");
    }
    let address = tcp(&stage);
    let received = spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).expect("connected");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).map(|_| bytes)
    });
    assert_eq!(received.await.expect("read").expect("closed"), b"");
    for (response, mut body) in open {
        body.send_data(vec![0; 5].into(), true).expect("open");
        assert!(response.await.is_ok());
    }
    stage.running.stop().await;
}

const CALL_URL: &str = "http://tollgate/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

async fn client(stage: &TestServer) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(tcp(stage)).await.expect("connected");
    let (requests, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    requests
}

/// Calls once, and waits for the start of the answer.
async fn call(client: &mut SendRequest<Bytes>) -> Result<(), h2::Error> {
    let (response, mut body) = client.send_request(post(CALL_URL), false)?;
    body.send_data(vec![0; 5].into(), true)?;
    response.await.map(drop)
}

#[tokio::test]
async fn a_client_without_a_preface_is_closed_and_an_idle_one_with_it_is_not() {
    let stage = stage(GOOD, "--handshake-timeout=1s", 1).await;
    let address = tcp(&stage);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let silent = [&b""[..], &preface[..20], preface];
    let silent = join_all(silent.map(|sent| {
        spawn_blocking(move || {
            let mut stream = TcpStream::connect(address).expect("connected");
            stream.write_all(sent).expect("sent");
            // May be a reset, as unread bytes remain.
            let _ = stream.read_to_end(&mut Vec::new());
        })
    }));
    let idle = stage.connect().await;
    for closed in silent.await {
        closed.expect("closed");
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(decide(idle).await, Ok(()));
    stage.running.stop().await;
}

fn post(url: &str) -> hyper::Request<()> {
    let request = hyper::Request::post(url).header("content-type", "application/grpc");
    request.body(()).expect("a request")
}

/// A browser sends the first three for a web page without a preflight request.
#[tokio::test]
async fn requests_that_are_no_grpc_calls_are_refused_and_reach_no_service() {
    let mut stage = stage(GOOD, "", 1).await;
    let mut requests = client(&stage).await;
    for path in [SHOULD_RATE_LIMIT_PATH, "/grpc.health.v1.Health/Check"] {
        for (method, kind, expected) in [
            ("POST", "text/plain", 415),
            ("POST", "application/x-www-form-urlencoded", 415),
            ("GET", "text/plain", 405),
            ("POST", "application/json", 415),
            ("POST", "application/grpc-web+proto", 415),
            ("GET", "application/grpc", 405),
            ("POST", "application/grpc+proto", 200),
        ] {
            let request = hyper::Request::builder().method(method).uri(format!("http://t{path}"));
            let request = request.header("content-type", kind).body(()).expect("a request");
            let (answer, mut body) = requests.send_request(request, false).expect("sent");
            // A request that is refused may have ended already.
            let _ = body.send_data(Bytes::from_static(b"\0\0\0\0\0"), true);
            let answer = answer.await.expect("an answer");
            assert_eq!(answer.status(), expected, "{method} {kind} {path}");
            assert_eq!(answer.headers().contains_key("allow"), expected == 405);
        }
    }
    stage.begun.close();
    assert!(stage.begun.recv().await.is_some() && stage.begun.recv().await.is_none(), "one call");
    stage.running.stop().await;
}

/// Each client keeps its connections open.
#[tokio::test]
async fn idle_connections_above_the_limit_leave_http_ports_their_probes() {
    raise_descriptors();
    let stage = stage(GOOD, "--metrics-address=127.0.0.1:0", 0).await;
    let running = &stage.running;
    let metrics = running.address(Port::Metrics).expect("a metrics port");
    let http = running.address(Port::Http).expect("an HTTP port");
    for (address, path) in [(http, "/healthcheck"), (metrics, "/metrics")] {
        let mut clients = Vec::new();
        for _ in 0..1_030 {
            clients.push(tokio::net::TcpStream::connect(address).await.expect("connected"));
        }
        let response = get(address, path).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{address}{path}: {response}");
    }
    stage.running.stop().await;
}

/// Raises the soft limit on open files, which is often 1,024.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("raised");
}

#[tokio::test]
async fn a_call_with_an_incomplete_message_times_out_and_others_are_answered() {
    let stage = stage(GOOD, "--handshake-timeout=1s", 1).await;
    let mut requests = client(&stage).await;
    // One call to health, one to the rate-limit service.
    let check = post("http://t/grpc.health.v1.Health/Check");
    let (check, _body) = requests.send_request(check, false).expect("sent");
    let request = post(&format!("http://t{SHOULD_RATE_LIMIT_PATH}"));
    let (answer, mut body) = requests.send_request(request, false).expect("sent");
    // The beginning of a message.
    body.send_data(Bytes::from_static(b"\0\0\0\0\x09half"), false).expect("sent");
    assert_eq!(decide(stage.connect().await).await, Ok(()));
    let answer = answer.await.expect("an answer");
    let status = answer.headers().get(Status::GRPC_STATUS).expect("a status");
    assert_eq!(status, "4", "DEADLINE_EXCEEDED");
    let check = check.await.expect("an answer");
    assert_eq!(check.headers().get(Status::GRPC_STATUS).expect("a status"), "4");
    stage.running.stop().await;
}

/// A server with another keepalive.
async fn stage_with_pings(interval: Option<Duration>, timeout: Duration, permits: usize) -> TestServer {
    let change = |settings: &mut Settings| {
        settings.grpc.keepalive_interval = interval;
        settings.grpc.keepalive_timeout = timeout;
    };
    stage_with(GOOD, "", permits, change).await
}

#[tokio::test]
async fn a_client_that_does_not_acknowledge_pings_is_closed() {
    let stage = stage_with_pings(Some(Duration::from_millis(50)), Duration::from_millis(50), 0).await;
    let address = tcp(&stage);
    let frames = spawn_blocking(move || frames_until_the_end(address)).await.expect("closed");
    const PING: u8 = 6;
    assert!(frames.contains(&PING), "{frames:?}");
    stage.running.stop().await;
}

#[tokio::test]
async fn a_client_that_never_reads_is_closed() {
    // Keepalive does not help here: the PING would have to be written.
    let stage = stage_with_pings(None, Duration::from_millis(200), 0).await;
    let address = tcp(&stage);
    let closed = spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.set_write_timeout(Some(Duration::from_secs(30))).expect("set");
        stream.write_all(HTTP2_START).expect("sent");
        // Each needs an acknowledgement; once the server cannot write any more, it stops reading.
        let pings = b"\0\0\x08\x06\0\0\0\0\0reflect!".repeat(1000);
        loop {
            if let Err(error) = stream.write_all(&pings) {
                return error.kind();
            }
        }
    });
    let kind = closed.await.expect("no panic");
    assert!(matches!(kind, io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), "{kind}");
    stage.running.stop().await;
}

#[tokio::test]
async fn a_client_with_a_closed_window_is_closed_although_it_acknowledges_pings() {
    let stage = stage_with_pings(Some(Duration::from_millis(50)), Duration::from_millis(500), 1).await;
    let stream = tokio::net::TcpStream::connect(tcp(&stage)).await.expect("connected");
    let mut client = h2::client::Builder::new();
    let (mut requests, connection) =
        client.initial_window_size(0).handshake::<_, Bytes>(stream).await.expect("opened");
    let ended = tokio::spawn(connection);
    let request = post(&format!("http://t{SHOULD_RATE_LIMIT_PATH}"));
    let (answer, mut body) = requests.send_request(request, false).expect("sent");
    body.send_data(Bytes::from_static(b"\0\0\0\0\0"), true).expect("sent");
    let mut body = answer.await.expect("a response head").into_body();
    assert!(!matches!(body.data().await, Some(Ok(_))));
    let _ = ended.await.expect("no panic");
    stage.running.stop().await;
}

#[tokio::test]
async fn reflection_lists_the_services() {
    let stage = stage(GOOD, "", 0).await;
    let channel = stage.connect().await;
    let mut client =
        tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient::new(channel.clone());
    let request = tonic_reflection::pb::v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(
            tonic_reflection::pb::v1::server_reflection_request::MessageRequest::ListServices(String::new()),
        ),
    };
    let answers = client.server_reflection_info(futures_util::stream::iter([request])).await.expect("served");
    let answer = answers.into_inner().message().await.expect("answered");
    let text = format!("{answer:?}");
    assert!(text.contains("envoy.service.ratelimit.v3.RateLimitService"), "{text}");
    assert!(text.contains("grpc.health.v1.Health"), "{text}");
    stage.running.stop().await;
}
