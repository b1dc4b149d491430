//! Servers that are absent, recover or stall.

use super::server::{Server, Way};
use super::*;

#[tokio::test]
async fn a_recovered_server_gets_missed_counts_once() {
    let port = free_port();
    let first = Server::tcp(port);
    let tollgate = Tollgate::logging(RULES, &["--statsd", &first.url, "--statsd-interval", "100ms"]);
    let mut client = tollgate.client().await;
    send(&mut client, 20).await;
    // So that nothing but the gauge is on its way when it goes.
    first.wait_until(|sums| *sums == expected(20));
    let mut sums = first.end().sums();
    send(&mut client, 30).await;
    tollgate.wait_for_log("StatsD export failed");
    // Several intervals without a server.
    thread::sleep(Duration::from_millis(400));
    let second = Server::tcp(port);
    second.wait_for(&format!("{CALL}total_requests"), 30);
    send(&mut client, 10).await;
    drop(client);
    let log = end(tollgate).await.log();
    for (name, more) in second.end().sums() {
        *sums.entry(name).or_default() += more;
    }
    assert_eq!(sums, expected(60));
    assert_eq!(log.matches("StatsD export failed").count(), 1);
    assert_eq!(log.matches("StatsD export recovered").count(), 1);
}

#[tokio::test]
async fn a_local_agent_that_starts_later_gets_all_counts() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let port = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let socket = directory.path().join("statsd.socket");
    for url in [format!("udp://127.0.0.1:{port}"), format!("unix://{}", socket.display())] {
        let tollgate = Tollgate::logging(RULES, &["--statsd", &url, "--statsd-interval", "100ms"]);
        let mut client = tollgate.client().await;
        send(&mut client, 30).await;
        tollgate.wait_for_log("StatsD export failed");
        let server = if url.starts_with("udp") {
            let socket = UdpSocket::bind(("127.0.0.1", port)).expect("no server received it");
            socket.set_nonblocking(true).expect("a socket");
            Server::begin(url.clone(), Way::Udp(socket))
        } else {
            Server::unix(directory.path())
        };
        server.wait_for(&format!("{CALL}total_requests"), 30);
        send(&mut client, 10).await;
        drop(client);
        end(tollgate).await;
        assert_eq!(server.end().sums(), expected(40), "{url}");
    }
}

#[tokio::test]
async fn a_stalled_server_delays_neither_responses_nor_shutdown() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("statsd.socket");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    // So that it takes no more.
    let filler = UnixDatagram::unbound().expect("a socket");
    filler.set_nonblocking(true).expect("a socket");
    while filler.send_to(b"x:1|c", &path).is_ok() {}
    let url = format!("unix://{}", path.display());
    let tollgate = Tollgate::logging(RULES, &["--statsd", &url, "--statsd-interval", "100ms"]);
    let mut client = tollgate.client().await;
    let begun = Instant::now();
    send(&mut client, 500).await;
    drop(client);
    // The exporter waits up to five seconds per interval; this many intervals would take minutes.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let log = end(tollgate).await.log();
    // Logged by the waiting task or by the sender; by both if both time out at once.
    assert!((1..=2).contains(&log.matches("the last counts").count()), "it is waited for too long");
    drop(socket);
}

#[tokio::test]
async fn undelivered_counts_at_shutdown_are_logged() {
    let tollgate = Tollgate::logging(RULES, &["--statsd", &format!("tcp://127.0.0.1:{}", free_port())]);
    send(&mut tollgate.client().await, 1).await;
    let log = end(tollgate).await.log();
    assert_eq!(log.matches("failed to send the last counts server=tcp://127.0.0.1:").count(), 1);
}
