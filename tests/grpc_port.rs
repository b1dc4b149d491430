//! Bytes of clients before a call is decided: invalid authorities, messages that end never, connections without calls.

use std::io::Read as _;

use bytes::{BufMut as _, Bytes};
use h2::client::{self, SendRequest};
use prost::Message as _;
use tokio::time::timeout;

use crate::support::{http2::frame, prelude::*};

const RULES: &str =
    "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: year, requests_per_unit: 3}}\n- {key: free}\n";

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const RESERVE: &str = "/tollgate.reservation.v1.ReservationService/Reserve";

const LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// HTTP/2 preface of a client, with settings that change nothing.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Headers of a call, which add each field to the table of HPACK.
fn headers(stream: u32, fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut block = vec![0x83];
    for (name, value) in fields {
        block.push(0x40);
        for text in [name.as_bytes(), value] {
            block.push(u8::try_from(text.len()).expect("short"));
            block.extend_from_slice(text);
        }
    }
    frame(1, 4, stream, &block)
}

fn usual(stream: u32, path: &str) -> Vec<u8> {
    let fields: [(&str, &[u8]); 4] = [
        (":scheme", b"http"),
        (":path", path.as_bytes()),
        (":authority", b"tollgate"),
        ("content-type", b"application/grpc"),
    ];
    headers(stream, &fields)
}

fn message(key: &str) -> Vec<u8> {
    let encoded = request("d", &[&[(key, "v")]]).encode_to_vec();
    let mut message = vec![0];
    message.put_u32(u32::try_from(encoded.len()).expect("short"));
    message.extend(encoded);
    message
}

/// Frames of a kind that the server sends, until `count` of them or its end.
fn received(stream: &mut TcpStream, kind: u8, count: usize) -> Vec<(u8, Vec<u8>)> {
    stream.set_read_timeout(Some(LIMIT)).expect("set");
    let mut frames = Vec::new();
    let mut header = [0; 9];
    while frames.iter().filter(|(found, _)| *found == kind).count() < count
        && stream.read_exact(&mut header).is_ok()
    {
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).expect("a payload");
        frames.push((header[3], payload));
    }
    frames
}

fn connect(tollgate: &Tollgate, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", tollgate.grpc_port)).expect("connected");
    stream.write_all(PREFACE).expect("sent");
    stream.write_all(bytes).expect("sent");
    stream
}

fn metric(tollgate: &Tollgate, series: &str) -> f64 {
    tollgate.metric(series).unwrap_or_else(|| panic!("no {series}"))
}

#[test]
fn calls_with_an_authority_or_a_scheme_that_http2_refuses_are_decided() {
    let tollgate = Tollgate::serving(RULES, &[]);
    let istio: &[u8] = b"outbound|8081||ratelimit.default.svc.cluster.local";
    let [http, empty]: [&[u8]; 2] = [b"http", b""];
    for (at, (authority, scheme)) in [
        (istio, http),
        (b"%2Frun%2Ftollgate.sock", http),
        (b"unix:/run/tollgate.sock", http),
        (empty, http),
        (b"a b", http),
        ("t\u{f6}ll".as_bytes(), http),
        (b"\xff\xfe", http),
        (b"tollgate", empty),
        (b"tollgate", b"a b"),
    ]
    .into_iter()
    .enumerate()
    {
        let fields: [(&str, &[u8]); 5] = [
            (":authority", authority),
            (":scheme", scheme),
            (":path", SHOULD_RATE_LIMIT.as_bytes()),
            ("te", b"trailers"),
            ("content-type", b"application/grpc"),
        ];
        let call = message("k");
        let mut bytes = headers(1, &fields);
        bytes.extend(frame(0, 1, 1, &call));
        // All fields by their index, from now on.
        let block = [0x83, 0xc2, 0xc1, 0xc0, 0xbf, 0xbe];
        for stream in [3, 5] {
            bytes.extend(frame(1, 4, stream, &block));
            bytes.extend(frame(0, 1, stream, &call));
        }
        let answers = received(&mut connect(&tollgate, &bytes), 0, 3);
        let codes = answers
            .iter()
            .filter(|(kind, _)| *kind == 0)
            .map(|(_, payload)| RateLimitResponse::decode(&payload[5..]).expect("a response").overall_code());
        let expected = if at == 0 { Code::Ok } else { Code::OverLimit };
        assert_eq!(codes.collect::<Vec<_>>(), [expected; 3], "{}", String::from_utf8_lossy(authority));
        assert!(answers.iter().all(|(kind, _)| *kind != 3), "no reset");
    }
    assert!(metric(&tollgate, "tollgate_http2_refused_total{reason=\"protocol_error\"}") < 1.0);
}

#[test]
fn what_http2_refuses_is_counted() {
    let tollgate = Tollgate::serving(RULES, &[]);
    let protocol_errors =
        || metric(&tollgate, "tollgate_http2_refused_total{reason=\"protocol_error\"}") as u64;
    assert_eq!(protocol_errors(), 0);
    // A scheme and a path, without a method.
    let frames = received(&mut connect(&tollgate, &frame(1, 4, 1, &[0x86, 0x84])), 3, 1);
    assert!(frames.iter().any(|(kind, payload)| *kind == 3 && payload[..] == [0, 0, 0, 1]), "{frames:?}");
    wait("the reset is not counted", || protocol_errors() == 1);
    // HTTP/1, and TLS on a port without.
    for (bytes, count) in [
        (&b"GET / HTTP/1.1\r\nHost: tollgate:8081\r\n\r\n"[..], 2),
        (&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], 3),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", tollgate.grpc_port)).expect("connected");
        stream.write_all(bytes).expect("sent");
        wait("the connection is not counted", || protocol_errors() == count);
    }
    // A malformed header block.
    let _malformed = connect(&tollgate, &frame(1, 4, 1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff]));
    wait("not counted", || {
        let page = tollgate.metrics();
        page.lines().any(|line| {
            line.starts_with("tollgate_http2_refused_total{reason=")
                && line.ends_with("compression_error\"} 1")
        }) || protocol_errors() == 4
    });
}

async fn client(tollgate: &Tollgate) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", tollgate.grpc_port)).await.expect("connected");
    let (requests, connection) = client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    requests
}

fn grpc(path: &str) -> hyper::Request<()> {
    let request =
        hyper::Request::post(format!("http://tollgate{path}")).header("content-type", "application/grpc");
    request.body(()).expect("a request")
}

/// The gRPC status of a call.
async fn status(response: client::ResponseFuture) -> Option<String> {
    let (head, mut body) = timeout(LIMIT, response).await.expect("in time").ok()?.into_parts();
    let mut headers = head.headers;
    while let Some(data) = body.data().await {
        body.flow_control().release_capacity(data.ok()?.len()).ok()?;
    }
    headers.extend(body.trailers().await.ok()?.unwrap_or_default());
    headers.get("grpc-status").and_then(|status| status.to_str().ok()).map(ToOwned::to_owned)
}

#[tokio::test]
async fn announced_lengths_take_no_memory() {
    let tollgate = Tollgate::serving(RULES, &[]);
    assert!(tollgate.client().await.passes("d", &[("free", "v")]).await);
    let before = tollgate.resident();
    let mut attack = Vec::new();
    for call in 0..1_000 {
        attack.extend(usual(2 * call + 1, RESERVE));
        // A message of a MiB.
        attack.extend(frame(0, 0, 2 * call + 1, &[0, 0, 0x10, 0, 0]));
    }
    attack.extend(frame(6, 0, 0, &[1; 8]));
    let mut stream = connect(&tollgate, &attack);
    let frames = received(&mut stream, 6, 1);
    assert!(frames.iter().any(|(kind, _)| *kind == 6), "read to the end");
    sleep(Duration::from_millis(300)).await;
    let growth = tollgate.resident().saturating_sub(before);
    assert!(growth < 64 * MIB, "{} MiB", growth / MIB);
    assert!(tollgate.client().await.passes("d", &[("free", "v")]).await);
}

#[tokio::test]
async fn unfinished_messages_of_all_connections_have_one_bound() {
    let tollgate = Tollgate::serving(RULES, &["--handshake-timeout", "60s"]);
    let before = tollgate.resident();
    let refused = || metric(&tollgate, "tollgate_unfinished_messages_refused_total{port=\"grpc\"}");
    let part = Bytes::from([&[0, 0, 0x10, 0, 0][..], &[1; 60_000]].concat());
    let mut open = Vec::new();
    // 480 MB in all.
    for _ in 0..500 {
        let mut client = client(&tollgate).await;
        for path in [SHOULD_RATE_LIMIT, RESERVE].into_iter().cycle().take(16) {
            let Ok(ready) = client.clone().ready().await else { break };
            client = ready;
            let Ok((response, mut body)) = client.send_request(grpc(path), false) else { break };
            let _ = body.send_data(part.clone(), false);
            open.push((client.clone(), response, body));
        }
    }
    for _ in 0..600 {
        if refused() > 0.0 {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    assert!(refused() > 0.0, "none is refused");
    let growth = tollgate.resident().saturating_sub(before);
    assert!(growth < 400 * MIB, "{} MiB", growth / MIB);
    // Messages that arrive at once are decided.
    assert!(tollgate.client().await.passes("d", &[("free", "v")]).await);
    // Sends a message in two parts.
    let send = async |message: Bytes, cut: usize| {
        let mut other = client(&tollgate).await;
        let (response, mut body) = other.send_request(grpc(SHOULD_RATE_LIMIT), false).expect("open");
        body.send_data(message.slice(..cut), false).expect("open");
        sleep(Duration::from_millis(100)).await;
        let _ = body.send_data(message.slice(cut..), true);
        status(response).await
    };
    // More than the last refused message leaves.
    let long = Bytes::from([&[0, 0, 0x10, 0, 0][..], &[1; 300_000]].concat());
    assert_eq!(send(long, 200_000).await.as_deref(), Some("8"), "RESOURCE_EXHAUSTED");
    drop(open);
    for _ in 0..300 {
        if send(Bytes::from(message("free")), 9).await.as_deref() == Some("0") {
            return;
        }
    }
    panic!("the memory of the others is not free");
}

#[test]
fn half_bodies_keep_no_operator_out() {
    const OPERATOR: &str = "operators-secret-0123456789";
    const VIEWER: &str = "viewers-secret-0123456789";
    let tokens = tempfile::NamedTempFile::new().expect("a file");
    fs::write(tokens.path(), format!("ann operator {OPERATOR}\nbob viewer {VIEWER}\n")).expect("written");
    let tollgate = Tollgate::serving(RULES, &["--admin-token-file", tokens.path().to_str().expect("a path")]);
    let half = |port: u16, path: &str, length: usize| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {VIEWER}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{{\"files\": ",
            length + 100
        );
        let body = " ".repeat(length);
        // It may be refused meanwhile.
        let _sent = stream.write_all(format!("{head}{body}").as_bytes());
        stream
    };
    let mut open = Vec::new();
    // More than a port permits, and fewer that use up its memory.
    for _ in 0..1_100 {
        open.push(half(tollgate.admin_port, "/api/v1/validate", 900));
        open.push(half(tollgate.http_port, "/json", 900));
    }
    for _ in 0..600 {
        open.push(half(tollgate.admin_port, "/api/v1/validate", 64_000));
        open.push(half(tollgate.http_port, "/json", 64_000));
    }
    for _ in 0..10 {
        let bearer = format!("Bearer {OPERATOR}");
        assert_eq!(http::get_with(&tollgate.admin_url("/api/v1/me"), &bearer).status, 200);
        let body = "{\"files\": {\"a.yaml\": \"domain: a\"}}";
        let headers = [("authorization", &*bearer)];
        assert_eq!(
            http::send("POST", &tollgate.admin_url("/api/v1/validate"), &headers, Some(body)).status,
            200
        );
        let body =
            "{\"domain\": \"d\", \"descriptors\": [{\"entries\": [{\"key\": \"free\", \"value\": \"v\"}]}]}";
        assert_eq!(tollgate.post(body).status, 200);
    }
}

#[tokio::test]
async fn idle_connections_keep_no_caller_out_and_cost_no_call() {
    let tollgate = Tollgate::serving(RULES, &["--max-connections", "40"]);
    let mut caller = tollgate.client().await;
    let idle = || {
        [connect(&tollgate, &[]), TcpStream::connect(("127.0.0.1", tollgate.grpc_port)).expect("connected")]
    };
    let mut open = Vec::new();
    for _ in 0..60 {
        // At 114, a new one is refused until evicted ones, which have a second, have ended.
        while metric(&tollgate, "tollgate_grpc_connections") > 100.0 {
            sleep(Duration::from_millis(50)).await;
        }
        open.extend(idle());
        assert!(caller.passes("d", &[("free", "v")]).await);
        assert!(tollgate.client().await.passes("d", &[("free", "v")]).await);
    }
    assert!(metric(&tollgate, "tollgate_connections_evicted_total{port=\"grpc\"}") >= 60.0);
}
