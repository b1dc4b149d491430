//! Counts, as a StatsD server receives them.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{ErrorKind, Read as _},
    net::{TcpListener, TcpStream, UdpSocket},
    os::unix::net::UnixDatagram,
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tollgate::proto::envoy::service::ratelimit::v3::RateLimitRequest;

use crate::{
    docs,
    support::{
        free_port,
        tollgate::{Client, Tollgate, command, project, request, rules},
    },
};

const RULES: &str = "
domain: edge
descriptors:
- {key: user, rate_limit: {unit: year, requests_per_unit: 10}}
- {key: watched, rate_limit: {unit: year, requests_per_unit: 10}, shadow_mode: true}
- {key: remote_address, rate_limit: {unit: year, requests_per_unit: 1000000}, value_to_metric: true}
- key: tenant
  descriptors:
  - {key: path, rate_limit: {unit: year, requests_per_unit: 1000000}}
";

/// The transport to a server.
enum Way {
    Udp(UdpSocket),
    Unix(UnixDatagram),
    Tcp(TcpListener, Vec<(TcpStream, Vec<u8>)>),
}

/// A StatsD server that adds up what it is sent, until it is dropped.
struct Server {
    url: String,
    received: Arc<Mutex<Received>>,
    is_ending: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

/// The received data.
#[derive(Clone, Debug, Default)]
struct Received {
    /// Bytes of each datagram.
    packets: Vec<usize>,
    connections: usize,
    lines: Vec<Line>,
}

/// A line of StatsD.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    name: String,
    tags: Vec<(String, String)>,
    value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Counter(u64),
    Gauge(u64),
    Timer { milliseconds: f64, times: u64 },
}

impl Server {
    fn udp() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_nonblocking(true).expect("a socket");
        let url = format!("udp://{}", socket.local_addr().expect("a port"));
        Self::begin(url, Way::Udp(socket))
    }

    fn unix(directory: &Path) -> Self {
        let path = directory.join("statsd.socket");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        Self::begin(format!("unix://{}", path.display()), Way::Unix(socket))
    }

    fn tcp(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        Self::begin(format!("tcp://127.0.0.1:{port}"), Way::Tcp(listener, Vec::new()))
    }

    fn begin(url: String, mut way: Way) -> Self {
        let (received, is_ending) = (Arc::<Mutex<Received>>::default(), Arc::<AtomicBool>::default());
        let reader = thread::spawn({
            let (received, is_ending) = (Arc::clone(&received), Arc::clone(&is_ending));
            move || {
                loop {
                    // Read first, so that the counts sent before are read.
                    let is_last = is_ending.load(Ordering::Acquire);
                    way.read(&mut received.lock().expect("no panic"));
                    if is_last {
                        return;
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        Self { url, received, is_ending, reader: Some(reader) }
    }

    fn port(&self) -> &str {
        self.url.rsplit_once(':').expect("a port").1
    }

    /// The sums so far, by name and tags.
    fn sums(&self) -> BTreeMap<String, u64> {
        self.received.lock().expect("lines as they should be").sums()
    }

    /// Waits until something was received.
    fn wait_for(&self, name: &str, sum: u64) {
        self.wait_until(|sums| sums.get(name) == Some(&sum));
    }

    /// Waits until the received sums are as expected.
    fn wait_until(&self, is_there: impl Fn(&BTreeMap<String, u64>) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !is_there(&self.sums()) {
            assert!(Instant::now() < deadline, "{:#?}", self.sums());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Reads what is there, and ends.
    fn end(mut self) -> Received {
        self.is_ending.store(true, Ordering::Release);
        self.reader.take().expect("it was begun").join().expect("lines as they should be");
        self.received.lock().expect("no panic").clone()
    }
}

impl Way {
    fn read(&mut self, received: &mut Received) {
        let mut buffer = [0; 1 << 16];
        match self {
            Self::Udp(socket) => {
                while let Ok(length) = socket.recv(&mut buffer) {
                    received.datagram(&buffer[..length], 1_432);
                }
            }
            Self::Unix(socket) => {
                while let Ok(length) = socket.recv(&mut buffer) {
                    received.datagram(&buffer[..length], 8 << 10);
                }
            }
            Self::Tcp(listener, connections) => {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true).expect("a socket");
                    received.connections += 1;
                    connections.push((stream, Vec::new()));
                }
                for (stream, text) in connections {
                    received.stream(stream, text);
                }
            }
        }
    }
}

impl Received {
    fn datagram(&mut self, packet: &[u8], most: usize) {
        assert!(packet.len() <= most, "{} bytes", packet.len());
        self.packets.push(packet.len());
        let text = str::from_utf8(packet).expect("a text");
        self.lines.extend(text.split('\n').map(Line::parse));
    }

    fn stream(&mut self, stream: &mut TcpStream, text: &mut Vec<u8>) {
        match stream.read_to_end(text) {
            Ok(_) => assert!(text.is_empty() || text.ends_with(b"\n"), "half a line at the end"),
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionReset),
                    "{error}"
                );
            }
        }
        let ends = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole: Vec<u8> = text.drain(..ends).collect();
        self.lines.extend(str::from_utf8(&whole).expect("a text").lines().map(Line::parse));
    }

    fn sums(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for Line { name, tags, value } in &self.lines {
            let tags: Vec<_> = tags.iter().map(|(key, value)| format!("{key}:{value}")).collect();
            let name = if tags.is_empty() { name.clone() } else { format!("{name}#{}", tags.join(",")) };
            let sum = sums.entry(name).or_default();
            match value {
                Value::Counter(count) => *sum += count,
                Value::Timer { times, .. } => *sum += times,
                Value::Gauge(value) => *sum = *value,
            }
        }
        sums
    }
}

impl Line {
    /// Reads a line as StatsD has it, with the tags of either form.
    fn parse(line: &str) -> Self {
        let bad = |what: &str| -> ! { panic!("{what}: {line:?}") };
        let is_clean =
            |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_control() || ":|".contains(c));
        let (name, rest) = line.split_once(':').unwrap_or_else(|| bad("no value"));
        let mut parts = rest.split('|');
        let (number, kind) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (mut rate, mut tags) = (None, Vec::new());
        for part in parts {
            match part.split_at_checked(1) {
                Some(("@", text)) if rate.is_none() && tags.is_empty() => {
                    rate = Some(text.parse::<f64>().unwrap_or_else(|_| bad("no rate")));
                }
                Some(("#", text)) if tags.is_empty() => {
                    let pair = |tag: &str| tag.split_once(':').map(|(key, value)| (key.into(), value.into()));
                    tags = text.split(',').map(|tag| pair(tag).unwrap_or_else(|| bad("no tag"))).collect();
                }
                _ => bad("no part"),
            }
        }
        let mut names = name.split(".__");
        let name = names.next().unwrap_or_default().to_owned();
        for tag in names {
            let (key, value) = tag.split_once('=').unwrap_or_else(|| bad("no tag"));
            tags.push((key.to_owned(), value.to_owned()));
        }
        if !is_clean(&name) || !tags.iter().all(|(key, value)| is_clean(key) && is_clean(value)) {
            bad("a bad name");
        }
        let whole = || number.parse::<u64>().unwrap_or_else(|_| bad("no whole number"));
        let value = match (kind, rate) {
            ("c", None) => {
                Value::Counter(Some(whole()).filter(|count| *count > 0).unwrap_or_else(|| bad("zero")))
            }
            ("g", None) => Value::Gauge(whole()),
            ("ms", rate) => {
                assert!(rate.is_none_or(|rate| rate > 0.0 && rate < 1.0), "{line}");
                let milliseconds = number.parse::<f64>().unwrap_or_else(|_| bad("no number"));
                // As servers do it that round down.
                Value::Timer { milliseconds, times: rate.map_or(1.0, f64::recip) as u64 }
            }
            _ => bad("no such kind"),
        };
        Self { name, tags, value }
    }
}

/// A tollgate that exports to a server at an interval.
fn tollgate(config: &Path, server: &Server, arguments: &[&str]) -> Tollgate {
    Tollgate::start(config, &[&["--statsd", &server.url, "--statsd-interval", "100ms"], arguments].concat())
}

/// Sends requests for one hit on each of the rules.
async fn send(client: &mut Client, count: usize) {
    for _ in 0..count {
        let deep = [("tenant", "acme"), ("path", "/")];
        let all: [&[(&str, &str)]; 4] =
            [&[("user", "me")], &[("watched", "me")], &[("remote_address", "10.0.0.1\nx:1|c")], &deep];
        let _ = client.call(request("edge", &all)).await.expect("an answer");
    }
}

/// Stops it, while connections are being closed.
async fn end(mut tollgate: Tollgate) {
    tollgate.signal("TERM");
    let code = tokio::task::spawn_blocking(move || tollgate.wait()).await;
    assert_eq!(code.expect("no panic"), Some(0));
}

const CALL: &str = "ratelimit_server.ShouldRateLimit.";

/// The expected sums of this many rounds of [`send`].
fn expected(rounds: u64) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    let address = "remote_address_10_0_0_1_x_1_c";
    for (path, kind, count) in [
        ("user", "total_hits", rounds),
        ("user", "within_limit", 10),
        ("user", "near_limit", 2),
        ("user", "over_limit", rounds - 10),
        ("watched", "total_hits", rounds),
        ("watched", "within_limit", 10),
        ("watched", "near_limit", 2),
        ("watched", "over_limit", rounds - 10),
        ("watched", "shadow_mode", rounds - 10),
        (address, "total_hits", rounds),
        (address, "within_limit", rounds),
        ("tenant.path", "total_hits", rounds),
        ("tenant.path", "within_limit", rounds),
    ] {
        sums.insert(format!("ratelimit.service.rate_limit.edge.{path}.{kind}"), count);
    }
    for name in ["total_requests", "response_time"] {
        sums.insert(format!("{CALL}{name}"), rounds);
    }
    sums.insert("ratelimit.service.config_load_success".to_owned(), 1);
    sums.insert("ratelimit.tollgate.over_limit_requests".to_owned(), rounds - 10);
    sums.insert("ratelimit.tollgate.redis_breakers_open".to_owned(), 0);
    sums
}

#[tokio::test]
async fn decisions_are_exported_exactly_over_every_transport() {
    let config = rules(RULES);
    let directory = tempfile::tempdir().expect("a temporary directory");
    for server in [Server::udp(), Server::unix(directory.path()), Server::tcp(free_port())] {
        let tollgate = tollgate(config.path(), &server, &[]);
        let mut client = tollgate.client().await;
        // Over several intervals.
        for rounds in [20, 40, 60] {
            send(&mut client, 20).await;
            server.wait_for(&format!("{CALL}total_requests"), rounds);
        }
        // The last counts are exported at shutdown.
        send(&mut client, 17).await;
        drop(client);
        end(tollgate).await;
        let url = server.url.clone();
        let received = server.end();
        assert_eq!(received.sums(), expected(77), "{url}");
        let times = received.lines.iter().filter_map(|line| match line.value {
            Value::Timer { milliseconds, .. } => Some(milliseconds),
            Value::Counter(_) | Value::Gauge(_) => None,
        });
        assert!(times.clone().count() > 0 && times.into_iter().all(|time| time > 0.0 && time <= 1_000.0));
    }
}

#[tokio::test]
async fn large_batches_use_several_packets_and_split_no_line() {
    let descriptors: String = (0..300)
        .map(|number| format!("- {{key: a_rule_of_a_rather_long_name_{number}, rate_limit: {{unit: year, requests_per_unit: 9}}}}\n"))
        .collect();
    let config = rules(&format!("domain: edge\ndescriptors:\n{descriptors}"));
    let directory = tempfile::tempdir().expect("a temporary directory");
    for server in [Server::udp(), Server::unix(directory.path()), Server::tcp(free_port())] {
        // Nothing but the last one.
        let tollgate = tollgate(config.path(), &server, &["--statsd-interval", "1h"]);
        let mut client = tollgate.client().await;
        let keys: Vec<_> = (0..300).map(|number| format!("a_rule_of_a_rather_long_name_{number}")).collect();
        for some in keys.chunks(50) {
            let entries: Vec<[(&str, &str); 1]> = some.iter().map(|key| [(&**key, "x")]).collect();
            let descriptors: Vec<&[(&str, &str)]> = entries.iter().map(|entry| &entry[..]).collect();
            let _ = client.call(request("edge", &descriptors)).await.expect("an answer");
        }
        drop(client);
        end(tollgate).await;
        let received = server.end();
        let sums = received.sums();
        for key in &keys {
            for kind in ["total_hits", "within_limit"] {
                assert_eq!(sums[&format!("ratelimit.service.rate_limit.edge.{key}.{kind}")], 1);
            }
        }
        assert!(received.packets.len() > 3 || received.connections == 1, "{:?}", received.packets);
    }
}

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
    let deadline = Instant::now() + Duration::from_secs(20);
    while lines_with(&log, "StatsD export failed") == 0 {
        assert!(Instant::now() < deadline, "nobody notices");
        thread::sleep(Duration::from_millis(5));
    }
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
        let deadline = Instant::now() + Duration::from_secs(20);
        while lines_with(&log, "StatsD export failed") == 0 {
            assert!(Instant::now() < deadline, "nobody notices");
            thread::sleep(Duration::from_millis(5));
        }
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

/// Starts with an environment of the reference, and a rule that is matched this many times.
async fn as_there(variables: &[(&str, &str)], calls: usize) {
    let config = rules(RULES);
    let mut program = command();
    program.envs(variables.iter().copied()).env("STATS_FLUSH_INTERVAL", "100ms");
    let tollgate = Tollgate::spawn_by(program, config.path(), &[]);
    tollgate.wait_until_ready();
    send(&mut tollgate.client().await, calls).await;
    end(tollgate).await;
}

#[tokio::test]
async fn an_environment_of_the_reference_sends_plain_lines_by_tcp() {
    let server = Server::tcp(free_port());
    let variables = [
        ("STATSD_HOST", "localhost"),
        ("STATSD_PORT", server.port()),
        ("USE_STATSD", "true"),
        ("USE_PROMETHEUS", "true"),
        ("EXTRA_TAGS", "zone:eu.1,env:prod"),
    ];
    as_there(&variables, 20).await;
    let tagged = |(name, sum)| (format!("{name}#env:prod,zone:eu_1"), sum);
    assert_eq!(server.end().sums(), expected(20).into_iter().map(tagged).collect());
}

#[tokio::test]
async fn an_environment_of_the_reference_sends_datadogs_lines_as_its_mogrifiers_say() {
    let server = Server::udp();
    let variables = [
        ("USE_STATSD", "false"),
        ("USE_DOG_STATSD", "true"),
        ("STATSD_HOST", "127.0.0.1"),
        ("STATSD_PORT", server.port()),
        ("EXTRA_TAGS", "env:prod"),
        ("USE_DOG_STATSD_MOGRIFIERS", "RULES,NEVER"),
        ("DOG_STATSD_MOGRIFIER_RULES_PATTERN", r"^ratelimit\.service\.rate_limit\.([^.]+)\.(.+)\.([^.]+)$"),
        ("DOG_STATSD_MOGRIFIER_RULES_NAME", "ratelimit.service.rate_limit.$3"),
        ("DOG_STATSD_MOGRIFIER_RULES_TAGS", "domain:$1,descriptor:$2"),
        ("DOG_STATSD_MOGRIFIER_NEVER_PATTERN", r"rate_limit\.edge"),
        ("DOG_STATSD_MOGRIFIER_NEVER_NAME", "never"),
    ];
    as_there(&variables, 20).await;
    let rewritten = |(name, sum): (String, u64)| {
        let name = match name.strip_prefix("ratelimit.service.rate_limit.edge.") {
            None => format!("{name}#env:prod"),
            Some(rest) => {
                let (descriptor, kind) = rest.rsplit_once('.').expect("a kind");
                format!("ratelimit.service.rate_limit.{kind}#env:prod,domain:edge,descriptor:{descriptor}")
            }
        };
        (name, sum)
    };
    assert_eq!(server.end().sums(), expected(20).into_iter().map(rewritten).collect());
}

#[tokio::test]
async fn nothing_is_sent_if_switched_off_or_without_an_address() {
    let server = Server::tcp(free_port());
    let to = [("STATSD_HOST", "127.0.0.1"), ("STATSD_PORT", server.port())];
    for off in [("USE_STATSD", "false"), ("DISABLE_STATS", "true")] {
        as_there(&[&to[..], &[off]].concat(), 11).await;
    }
    assert_eq!(server.end().connections, 0);
}

#[tokio::test]
async fn failed_requests_and_unknown_domains_are_exported() {
    let (config, server) = (rules(RULES), Server::udp());
    let tollgate =
        tollgate(config.path(), &server, &["--store", "redis://127.0.0.1:1", "--ready-without-store"]);
    let mut client = tollgate.client().await;
    for _ in 0..3 {
        assert!(client.call(RateLimitRequest::default()).await.is_err());
        let _ = client.call(request("nobody's", &[&[("user", "me")]])).await.expect("an answer");
        assert!(client.call(request("edge", &[&[("user", "me")]])).await.is_err());
    }
    drop(client);
    end(tollgate).await;
    let lenient = self::tollgate(config.path(), &server, &["--shadow-mode"]);
    send(&mut lenient.client().await, 13).await;
    end(lenient).await;
    let sums = server.end().sums();
    for (name, sum) in [
        ("ratelimit.service.call.should_rate_limit.redis_error", 3),
        ("ratelimit.service.call.should_rate_limit.service_error", 3),
        ("ratelimit.tollgate.unknown_domain_requests", 3),
        ("ratelimit.tollgate.degraded_requests", 3),
        ("ratelimit.tollgate.rate_limit.edge.user.degraded", 3),
        ("ratelimit_server.ShouldRateLimit.total_requests", 9 + 13),
        ("ratelimit.service.global_shadow_mode", 3),
    ] {
        assert_eq!(sums.get(name), Some(&sum), "{name} of {sums:#?}");
    }
}

#[tokio::test]
async fn the_documented_example_sends_the_documented_lines() {
    let server = Server::udp();
    let shown = docs::block("statsd");
    let example = docs::page("docs/reference/statsd.md").text;
    let example = example.lines().find(|line| line.contains(" --statsd udp://")).expect("an example");
    let words: Vec<String> = example
        .split_whitespace()
        .skip(1)
        .map(|word| if word.starts_with("udp://") { server.url.clone() } else { word.to_owned() })
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let tollgate = Tollgate::start(&project("config/default"), &words);
    let mut client = tollgate.client().await;
    for _ in 0..5 {
        assert!(client.passes("edge", &[("path", "/login")]).await);
    }
    drop(client);
    end(tollgate).await;
    let received = server.end();
    // How long calls take is not the same everywhere.
    let mut expected = Received::default();
    expected.lines.extend(shown.lines().map(Line::parse));
    assert_eq!(received.sums(), expected.sums());
}
