//! TLS on the ports of the program.

use std::io::Read as _;

use rustls::ClientConnection;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::support::certificates::{Connection, Pair};
use crate::support::prelude::*;

const RULES: &str = "domain: d\ndescriptors: []\n";
const SPIFFE: &str = "spiffe://mesh/ns/edge/sa/envoy";

/// A directory with the files of a port.
fn files(clients: &Authority, server: &Pair) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    server.write(directory.path());
    fs::write(directory.path().join("ca.pem"), clients.pem()).expect("written");
    directory
}

/// The flags of a port that has them.
fn flags(port: &str, directory: &Path, names: &[&str]) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    let mut flags = vec![
        format!("--{port}-tls"),
        ["cert.pem", "key.pem"].map(file).join(","),
        format!("--{port}-tls-client-ca"),
        file("ca.pem"),
    ];
    flags.extend(names.iter().flat_map(|name| [format!("--{port}-tls-client-san"), (*name).to_owned()]));
    flags
}

/// Puts another file in place of one, in one step.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("written");
    fs::rename(new, path).expect("renamed");
}

fn start(flags: &[String]) -> Tollgate {
    Tollgate::serving(RULES, &flags.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A gRPC port with TLS for all clients, the authority of its certificate, and the directory of that.
fn start_open(more: [&str; 4]) -> (Tollgate, Authority, TempDir) {
    let authority = Authority::new("ours");
    let directory = files(&authority, &authority.sign(&["localhost"]));
    let mut all = flags("grpc", directory.path(), &[])[..2].to_vec();
    all.extend(more.map(str::to_owned));
    (start(&all), authority, directory)
}

#[tokio::test]
async fn only_clients_with_a_certificate_of_the_authority_and_a_name_on_the_list_are_served() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("another"));
    let directory = files(&authority, &authority.sign(&["localhost"]));
    let tollgate = start(&flags("grpc", directory.path(), &[SPIFFE, "envoy.mesh"]));
    let open = async |shown: Option<Pair>| {
        Connection::open(&authority.client(shown.as_ref(), "h2"), tollgate.grpc_port).await.map(drop)
    };
    for (who, shown, is_served) in [
        ("nobody", None, false),
        ("one of another authority", Some(stranger.sign(&[SPIFFE])), false),
        ("another name", Some(authority.sign(&["spiffe://mesh/ns/edge/sa/other"])), false),
        ("a longer name", Some(authority.sign(&[&format!("{SPIFFE}2")])), false),
        ("a pattern for the name", Some(authority.sign(&["*.mesh"])), false),
        ("no name", Some(authority.sign(&[])), false),
        ("a URI", Some(authority.sign(&[SPIFFE])), true),
        ("a DNS name among others", Some(authority.sign(&["localhost", "envoy.mesh"])), true),
    ] {
        let served = open(shown).await;
        assert_eq!(served.is_ok(), is_served, "{who}: {served:?}");
    }
    assert_eq!(tollgate.metric("tollgate_tls_handshakes_total{port=\"grpc\",result=\"success\"}"), Some(2.0));
    assert_eq!(tollgate.metric("tollgate_tls_handshakes_total{port=\"grpc\",result=\"refused\"}"), Some(6.0));
    // Nor does anyone get in who does not speak TLS.
    let mut plain = TcpStream::connect(("127.0.0.1", tollgate.grpc_port)).expect("it listens");
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("sent");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"\0\0"), "{answer:?}");
}

#[tokio::test]
async fn changed_certificates_are_used_for_new_connections_and_bad_ones_are_not() {
    let authority = Authority::new("ours");
    let pairs = [authority.sign(&["localhost"]), authority.sign(&["localhost"])];
    let directory = files(&authority, &pairs[0]);
    let tollgate = start(&flags("grpc", directory.path(), &[]));
    let shown = authority.sign(&["envoy.mesh"]);
    let client = authority.client(Some(&shown), "h2");
    let mut old = Connection::open(&client, tollgate.grpc_port).await.expect("served");
    assert_eq!(old.certificate, pairs[0].der());

    // The new certificate is there before its key, and then a half of that.
    let failures = "tollgate_tls_reloads_total{port=\"grpc\",result=\"error\"}";
    for (count, file, text) in [
        (1.0, "cert.pem", pairs[1].certificate.as_str()),
        (2.0, "key.pem", &pairs[1].key[..pairs[1].key.len() / 2]),
    ] {
        replace(&directory.path().join(file), text);
        until("the failure does not come about", async || tollgate.metric(failures) == Some(count)).await;
        let new = Connection::open(&client, tollgate.grpc_port).await.expect("served");
        assert_eq!(new.certificate, pairs[0].der());
    }
    fs::remove_file(directory.path().join("key.pem")).expect("removed");
    until("the failure does not come about", async || tollgate.metric(failures) == Some(3.0)).await;

    replace(&directory.path().join("key.pem"), &pairs[1].key);
    let is_new = async || {
        let new = Connection::open(&client, tollgate.grpc_port).await.expect("served");
        new.certificate == pairs[1].der()
    };
    until("the new certificate does not come about", is_new).await;
    assert_eq!(tollgate.metric("tollgate_tls_reloads_total{port=\"grpc\",result=\"success\"}"), Some(1.0));
    old.check_health().await.expect("it lives on");

    // Another authority of clients: who was let in by the old one is so no more.
    let other = Authority::new("another");
    fs::write(directory.path().join("ca.pem"), other.pem()).expect("written");
    until("the new authority does not come about", async || {
        Connection::open(&client, tollgate.grpc_port).await.is_err()
    })
    .await;
    let shown = other.sign(&["envoy.mesh"]);
    let client = authority.client(Some(&shown), "h2");
    Connection::open(&client, tollgate.grpc_port).await.expect("served");
}

/// A mounted secret changes by a link that is put in place of another one.
#[tokio::test]
async fn a_secret_swapped_by_symlink_is_noticed() {
    let authority = Authority::new("ours");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let pairs = [authority.sign(&["localhost"]), authority.sign(&["localhost"])];
    let link = |number: usize| {
        let version = directory.path().join(format!("..version{number}"));
        fs::create_dir(&version).expect("created");
        pairs[number].write(&version);
        let new = directory.path().join("..new");
        std::os::unix::fs::symlink(&version, &new).expect("linked");
        fs::rename(new, directory.path().join("..data")).expect("swapped");
    };
    link(0);
    let data = directory.path().join("..data");
    let tollgate = start(&flags("grpc", &data, &[])[..2]);
    let client = authority.client(None, "h2");
    let presented = async || Connection::open(&client, tollgate.grpc_port).await.expect("served").certificate;
    assert_eq!(presented().await, pairs[0].der());
    link(1);
    let is_new = async || presented().await == pairs[1].der();
    until("the new certificate does not come about", is_new).await;
}

#[tokio::test]
async fn http_and_admin_ports_support_tls() {
    let authority = Authority::new("ours");
    let directory = files(&authority, &authority.sign(&["localhost"]));
    let config = rules(RULES);
    let mut all = flags("http", directory.path(), &["probe.mesh"]);
    all.extend(flags("admin", directory.path(), &["operator.mesh"]));
    let tollgate = Tollgate::spawn(config.path(), &all.iter().map(String::as_str).collect::<Vec<_>>());
    let get = async |port: u16, name: &str, path: &str| -> Option<String> {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let shown = authority.sign(&[name]);
        let connected = authority
            .client(Some(&shown), "http/1.1")
            .connect("localhost".try_into().expect("a name"), stream);
        let mut stream = connected.await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        Some(text)
    };
    let is_ready = async || {
        get(tollgate.http_port, "probe.mesh", "/healthcheck")
            .await
            .is_some_and(|text| text.starts_with("HTTP/1.1 200"))
    };
    until("readiness does not come about", is_ready).await;
    let rules = get(tollgate.admin_port, "operator.mesh", "/rlconfig").await.expect("an answer");
    assert!(rules.starts_with("HTTP/1.1 200"), "{rules}");
    assert_eq!(get(tollgate.admin_port, "probe.mesh", "/rlconfig").await, None);
    assert_eq!(get(tollgate.http_port, "operator.mesh", "/metrics").await, None);
    assert!(http::try_get(&tollgate.url("/healthcheck")).is_none());
}

#[tokio::test]
async fn a_stalled_handshake_times_out_and_delays_no_other() {
    let (tollgate, authority, _directory) = start_open(["--handshake-timeout", "1s", "--workers", "1"]);
    let silent: Vec<_> = (0..200)
        .map(|_| TcpStream::connect(("127.0.0.1", tollgate.grpc_port)).expect("it listens"))
        .collect();
    Connection::open(&authority.client(None, "h2"), tollgate.grpc_port).await.expect("served");
    let given_up = "tollgate_tls_handshakes_total{port=\"grpc\",result=\"timeout\"}";
    until("the end does not come about", async || tollgate.metric(given_up) == Some(200.0)).await;
    for mut silent in silent {
        assert_eq!(silent.read(&mut [0]).expect("closed"), 0);
    }
}

/// The first message of a handshake.
fn hello(client: &TlsConnector) -> Vec<u8> {
    let name = "localhost".try_into().expect("a name");
    let mut session = ClientConnection::new(Arc::clone(client.config()), name).expect("a client");
    let mut bytes = Vec::new();
    session.write_tls(&mut bytes).expect("room");
    bytes
}

#[tokio::test]
async fn incomplete_handshakes_delay_no_other() {
    let (tollgate, authority, _directory) = start_open(["--handshake-timeout", "60s", "--workers", "1"]);
    let client = authority.client(None, "h2");
    let halfway: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", tollgate.grpc_port)).expect("it listens");
            stream.write_all(&hello(&client)).expect("sent");
            // The server is at its part.
            stream.read_exact(&mut [0]).expect("an answer");
            stream
        })
        .collect();
    let opened = timeout(Duration::from_secs(30), Connection::open(&client, tollgate.grpc_port)).await;
    opened.expect("in time").expect("served");
    drop(halfway);
}

/// A health check as bytes, from the preface on.
fn raw_health_check() -> Vec<u8> {
    let mut headers =
        b"\x83\x87\x01\x01t\x04\x1c/grpc.health.v1.Health/Check\x0f\x10\x10application/grpc".to_vec();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    bytes.extend([0, 0, u8::try_from(headers.len()).expect("short"), 1, 4, 0, 0, 0, 1]);
    bytes.append(&mut headers);
    bytes.extend(b"\0\0\x05\0\x01\0\0\0\x01\0\0\0\0\0");
    bytes
}

#[tokio::test]
async fn clients_connected_before_a_stop_are_served_over_tls_too() {
    let (mut tollgate, authority, _directory) =
        start_open(["--handshake-timeout", "60s", "--drain-timeout", "60s"]);
    let port = tollgate.grpc_port;
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
    tollgate.signal("TERM");
    until("the end of the port does not come about", async || {
        TcpStream::connect(("127.0.0.1", port)).is_err()
    })
    .await;

    let name = "localhost".try_into().expect("a name");
    let mut stream = authority.client(None, "h2").connect(name, stream).await.expect("shaken");
    stream.write_all(&raw_health_check()).await.expect("sent");
    let mut received = Vec::new();
    // Field 1, status NOT_SERVING.
    while !received.windows(7).any(|bytes| bytes == b"\0\0\0\0\x02\x08\x02") {
        assert_ne!(stream.read_buf(&mut received).await.expect("an answer"), 0, "{received:?}");
    }
    drop(stream);
    assert_eq!(tollgate.wait(), Some(0));
}

fn refused(flags: &[String]) -> Ended {
    let config = rules(RULES);
    let mut serve = command();
    serve.arg("serve").arg("--config").arg(config.path());
    for port in ["grpc", "http", "admin"] {
        serve.args([&format!("--{port}-address"), "127.0.0.1:0"]);
    }
    ended(serve.args(flags))
}

#[test]
fn unusable_files_stop_the_start_with_flag_and_path_but_not_their_content() {
    let authority = Authority::new("ours");
    let (pair, other) = (authority.sign(&["localhost"]), authority.sign(&["localhost"]));
    let secret = pair.key.lines().nth(1).expect("a line").to_owned();
    // The key where the certificate belongs, and so on.
    for (file, text, flag) in [
        ("cert.pem", None, "--grpc-tls: "),
        ("cert.pem", Some(pair.key.as_str()), "--grpc-tls: "),
        ("cert.pem", Some(&other.certificate), "--grpc-tls: "),
        ("key.pem", None, "--grpc-tls: "),
        ("key.pem", Some(&pair.key.replace("-----END", "----END")), "--grpc-tls: "),
        ("key.pem", Some(&pair.certificate), "--grpc-tls: "),
        ("ca.pem", None, "--grpc-tls-client-ca: "),
        ("ca.pem", Some(&pair.key), "--grpc-tls-client-ca: "),
        ("ca.pem", Some(""), "--grpc-tls-client-ca: "),
    ] {
        let directory = files(&authority, &pair);
        let path = directory.path().join(file);
        match text {
            Some(text) => fs::write(&path, text).expect("written"),
            None => fs::remove_file(&path).expect("removed"),
        }
        let Ended { code, stderr: text, .. } = refused(&flags("grpc", directory.path(), &[]));
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(flag) && text.contains(&path.display().to_string()), "{flag} {text}");
        assert!(!text.contains(&secret), "{text}");
    }
}
