//! Servers that are absent, recover or stall.

use std::fs::{self, File};

use super::{
    server::{Server, Way},
    *,
};

/// A command whose log is in a file.
fn logging(log: &Path) -> Command {
    let mut program = command();
    let file = File::create(log).expect("writable");
    program.stdout(file.try_clone().expect("a file")).stderr(file);
    program
}

fn lines_with(log: &Path, text: &str) -> usize {
    fs::read_to_string(log).expect("a log").lines().filter(|line| line.contains(text)).count()
}

#[tokio::test]
async fn a_recovered_server_gets_missed_counts_once() {
    let (config, logs) = (rules(RULES), tempfile::tempdir().expect("a temporary directory"));
    let (log, port) = (logs.path().join("log"), free_port());
    let first = Server::tcp(port);
    let arguments = ["--statsd", &first.url, "--statsd-interval", "100ms"];
    let tollgate = Tollgate::spawn_by(logging(&log), config.path(), &arguments);
    tollgate.wait_until_ready();
    let mut client = tollgate.client().await;
    send(&mut client, 20).await;
    // So that nothing but the gauge is on its way when it goes.
    first.wait_until(|sums| *sums == expected(20));
    let mut sums = first.end().sums();
    send(&mut client, 30).await;
    wait("the outage goes unnoticed", || lines_with(&log, "StatsD export failed") > 0);
    // Several intervals without a server.
    thread::sleep(Duration::from_millis(400));
    let second = Server::tcp(port);
    second.wait_for(&format!("{CALL}total_requests"), 30);
    send(&mut client, 10).await;
    drop(client);
    end(tollgate).await;
    for (name, more) in second.end().sums() {
        *sums.entry(name).or_default() += more;
    }
    assert_eq!(sums, expected(60));
    assert_eq!(lines_with(&log, "StatsD export failed"), 1);
    assert_eq!(lines_with(&log, "StatsD export recovered"), 1);
}

#[tokio::test]
async fn a_local_agent_that_starts_later_gets_all_counts() {
    let (config, directory) = (rules(RULES), tempfile::tempdir().expect("a temporary directory"));
    let port = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let socket = directory.path().join("statsd.socket");
    for url in [format!("udp://127.0.0.1:{port}"), format!("unix://{}", socket.display())] {
        let log = directory.path().join("log");
        let arguments = ["--statsd", &url, "--statsd-interval", "100ms"];
        let tollgate = Tollgate::spawn_by(logging(&log), config.path(), &arguments);
        tollgate.wait_until_ready();
        let mut client = tollgate.client().await;
        send(&mut client, 30).await;
        wait("the outage goes unnoticed", || lines_with(&log, "StatsD export failed") > 0);
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
    let (config, directory) = (rules(RULES), tempfile::tempdir().expect("a temporary directory"));
    let path = directory.path().join("statsd.socket");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    // So that it takes no more.
    let filler = UnixDatagram::unbound().expect("a socket");
    filler.set_nonblocking(true).expect("a socket");
    while filler.send_to(b"x:1|c", &path).is_ok() {}
    let (url, log) = (format!("unix://{}", path.display()), directory.path().join("log"));
    let arguments = ["--statsd", &url, "--statsd-interval", "100ms"];
    let tollgate = Tollgate::spawn_by(logging(&log), config.path(), &arguments);
    tollgate.wait_until_ready();
    let mut client = tollgate.client().await;
    let begun = Instant::now();
    send(&mut client, 500).await;
    drop(client);
    // The exporter waits up to five seconds per interval; this many intervals would take minutes.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    end(tollgate).await;
    // Logged by the waiting task or by the sender; by both if both time out at once.
    assert!((1..=2).contains(&lines_with(&log, "the last counts")), "it is waited for too long");
    drop(socket);
}

#[tokio::test]
async fn undelivered_counts_at_shutdown_are_logged() {
    let (config, directory) = (rules(RULES), tempfile::tempdir().expect("a temporary directory"));
    let (url, log) = (format!("tcp://127.0.0.1:{}", free_port()), directory.path().join("log"));
    let tollgate = Tollgate::spawn_by(logging(&log), config.path(), &["--statsd", &url]);
    tollgate.wait_until_ready();
    send(&mut tollgate.client().await, 1).await;
    end(tollgate).await;
    assert_eq!(lines_with(&log, "failed to send the last counts server=tcp://127.0.0.1:"), 1);
}
