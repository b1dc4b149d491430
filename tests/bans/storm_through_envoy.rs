//! A retry storm through a real Envoy: what it costs, and what other clients notice.

use std::io::{BufRead as _, BufReader, Read as _};
use std::sync::{Mutex, atomic::AtomicUsize};
use std::thread::{self, JoinHandle};

use super::*;

const RULES: &str = "
domain: edge
descriptors:
- key: path
  value: /denied
  rate_limit: {unit: minute, requests_per_unit: 120}
- key: path
  rate_limit:
    unit: minute
    requests_per_unit: 120
    ban: {threshold: 5, interval: 1m, duration: 15s, max_duration: 2m, forgive: 1m, mode: enforce}
";

/// Connections of the storm, and of the honest clients.
const CONNECTIONS: usize = 4;
const STORM_RATE: usize = 5_000;
/// Requests of a connection without a response yet, beyond which it waits.
const MAX_IN_FLIGHT: usize = 256;
const HONEST_CLIENTS: usize = 200;

/// Responses by status.
type Statuses = BTreeMap<u16, u64>;

/// Clients that send requests at a rate, whatever the responses, until they are stopped.
struct Clients {
    is_stopped: Arc<AtomicBool>,
    statuses: Arc<Mutex<Statuses>>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Sends requests for `paths` in turn, `rate` in a second in all.
    fn start(envoy: &Envoy, paths: &[String], rate: usize) -> Self {
        let (is_stopped, statuses) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let mut threads = Vec::new();
        for connection in 0..CONNECTIONS {
            let paths: Vec<String> = paths.iter().skip(connection).step_by(CONNECTIONS).cloned().collect();
            let paths = if paths.is_empty() { vec!["/storm".to_owned()] } else { paths };
            let stream = TcpStream::connect(("127.0.0.1", envoy.port)).expect("Envoy listens");
            let responses = BufReader::new(stream.try_clone().expect("cloned"));
            let (statuses, received): (Arc<Mutex<Statuses>>, _) =
                (Arc::clone(&statuses), Arc::new(AtomicUsize::new(0)));
            let (is_stopped, counted) = (Arc::clone(&is_stopped), Arc::clone(&received));
            threads.push(thread::spawn(move || read(responses, &statuses, &counted)));
            threads.push(thread::spawn(move || {
                write(stream, &paths, rate / CONNECTIONS, (&is_stopped, &received));
            }));
        }
        Self { is_stopped, statuses, threads }
    }

    fn sent(&self) -> u64 {
        self.statuses.lock().expect("no panic").values().sum()
    }

    fn stop(self) -> Statuses {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        self.statuses.lock().expect("no panic").clone()
    }
}

fn write(
    mut stream: TcpStream,
    paths: &[String],
    rate: usize,
    (is_stopped, received): (&AtomicBool, &AtomicUsize),
) {
    let begun = Instant::now();
    let mut sent = 0;
    while !is_stopped.load(Ordering::Relaxed) {
        let due = (begun.elapsed().as_secs_f64() * rate as f64) as usize;
        let due = due.min(received.load(Ordering::Relaxed) + MAX_IN_FLIGHT);
        let mut text = String::new();
        while sent < due {
            text += &format!("GET {} HTTP/1.1\r\nhost: edge\r\n\r\n", paths[sent % paths.len()]);
            sent += 1;
        }
        stream.write_all(text.as_bytes()).expect("written");
        thread::sleep(Duration::from_millis(5));
    }
    stream.write_all(b"GET /end HTTP/1.1\r\nhost: edge\r\nconnection: close\r\n\r\n").expect("written");
}

fn read(mut responses: BufReader<TcpStream>, statuses: &Mutex<Statuses>, received: &AtomicUsize) {
    let mut line = String::new();
    while responses.read_line(&mut line).expect("readable") > 0 {
        let status: u16 = line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut length = 0;
        loop {
            line.clear();
            responses.read_line(&mut line).expect("readable");
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().expect("a number");
            }
        }
        responses.by_ref().take(length).read_to_end(&mut Vec::new()).expect("readable");
        *statuses.lock().expect("no panic").entry(status).or_default() += 1;
        received.fetch_add(1, Ordering::Relaxed);
        line.clear();
    }
}

/// Processor time in microseconds of tollgate and of Redis, and calls of Redis.
type Costs = [f64; 3];

/// Costs since the start of the servers.
fn costs(tollgate: &Tollgate, redis: &Redis) -> Costs {
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    [micros(tollgate.processor_time()), micros(redis.processor_time()), sent_calls(tollgate)]
}

/// Costs of a storm by its requests, without those of the other clients.
struct Meter<'a> {
    servers: (&'a Tollgate, &'a Redis),
    others: &'a Clients,
    /// Costs of a request of the other clients.
    of_others: Costs,
    begin: (Costs, u64),
}

impl<'a> Meter<'a> {
    fn start(servers: (&'a Tollgate, &'a Redis), others: &'a Clients, of_others: Costs) -> Self {
        Self { servers, others, of_others, begin: (costs(servers.0, servers.1), others.sent()) }
    }

    /// The costs since the start, divided by a number of requests; those of the other clients without one.
    fn by(&self, requests: Option<u64>) -> Costs {
        let (before, sent) = self.begin;
        let (now, others) = (costs(self.servers.0, self.servers.1), self.others.sent() - sent);
        let count = requests.unwrap_or(others) as f64;
        std::array::from_fn(|at| (now[at] - before[at] - self.of_others[at] * others as f64) / count)
    }

    fn report(self, what: &str, requests: u64) {
        let [service, redis, calls] = self.by(Some(requests));
        println!(
            "{what}: {requests} requests, {service:.1} µs of tollgate, {redis:.2} µs and {calls:.5} calls of Redis for each"
        );
    }
}

/// Calls that were sent to Redis.
fn sent_calls(tollgate: &Tollgate) -> f64 {
    let page = tollgate.metrics();
    let mut lines = page.lines();
    let line = lines.find_map(|line| line.strip_prefix("tollgate_redis_calls_total{source=\"sent\"} "));
    line.and_then(|count| count.parse().ok()).expect("a count")
}

fn bans(tollgate: &Tollgate) -> Vec<Value> {
    let page = tollgate.api("/bans");
    page["bans"].as_array().expect("a list").clone()
}

/// Waits until a ban is listed that ends later than `after`; gives its end and its level.
fn next_ban(tollgate: &Tollgate, after: u64) -> (u64, u64) {
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        for ban in bans(tollgate) {
            assert_eq!(ban["descriptor"][0]["value"], "/storm", "an honest client is banned");
            let ends = ban["ends_at_ms"].as_u64().expect("a time");
            if ends > after {
                return (ends, ban["level"].as_u64().expect("a level"));
            }
        }
        assert!(Instant::now() < deadline, "no ban");
        thread::sleep(Duration::from_millis(200));
    }
}

fn paths(name: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| if count == 1 { format!("/{name}") } else { format!("/{name}-{number}") })
        .collect()
}

/// Checks that each ban was of the next level, up to the highest one.
fn assert_levels_rise(levels: &[u64]) {
    let (mut expected, most) = (1, 4);
    for level in levels {
        assert_eq!(*level, expected, "{levels:?}");
        expected = (expected + 1).min(most);
    }
}

/// Sends a storm for a time. Returns the end of the last ban and the level of each.
fn storm_for(
    time: Duration,
    servers: (&Tollgate, &Redis),
    envoy: &Envoy,
    honest: &Clients,
    of_others: Costs,
) -> (u64, Vec<u64>) {
    let storm = Clients::start(envoy, &vec!["/storm".to_owned(); CONNECTIONS], STORM_RATE);
    let begun = Instant::now();
    let (mut after, mut levels) = (0, Vec::new());
    while begun.elapsed() < time {
        let (ends, level) = next_ban(servers.0, after);
        let left = Duration::from_millis(ends.saturating_sub(now_ms()));
        println!("{:.0} s: a ban of level {level} for {left:.0?}", begun.elapsed().as_secs_f64());
        let (meter, sent) = (Meter::start(servers, honest, of_others), storm.sent());
        thread::sleep(left.saturating_sub(Duration::from_secs(1)));
        meter.report("banned", storm.sent() - sent);
        levels.push(level);
        after = ends;
    }
    println!("storm: {:?}", storm.stop());
    // The last requests may have led to another ban.
    for ban in bans(servers.0) {
        let ends = ban["ends_at_ms"].as_u64().expect("a time");
        if ends > after {
            levels.push(ban["level"].as_u64().expect("a level"));
            after = ends;
        }
    }
    (after, levels)
}

/// Takes ten minutes, or the seconds in `STORM_SECONDS`:
/// `cargo test --release --test integration -- --ignored --nocapture a_storm_through_envoy`
#[test]
#[ignore = "a measurement"]
fn a_storm_through_envoy_costs_less_than_denials_and_harms_no_other_client() {
    let seconds = env::var("STORM_SECONDS").map_or(600, |text| text.parse().expect("a number"));
    let (redis, config) = (Redis::start(), rules(RULES));
    let tollgate = Tollgate::start(config.path(), &["--store", &redis.url(), "--store-timeout", "2s"]);
    let envoy = Envoy::edge(tollgate.grpc_port);
    let honest = Clients::start(&envoy, &paths("honest", HONEST_CLIENTS), HONEST_CLIENTS);

    let servers = (&tollgate, &redis);
    thread::sleep(Duration::from_secs(5));
    let meter = Meter::start(servers, &honest, Costs::default());
    thread::sleep(Duration::from_secs(20));
    let of_others = meter.by(None);
    println!("other clients alone: {of_others:.2?} for each request");

    let denied = Clients::start(&envoy, &vec!["/denied".to_owned(); CONNECTIONS], STORM_RATE);
    thread::sleep(Duration::from_secs(5));
    let (meter, sent) = (Meter::start(servers, &honest, of_others), denied.sent());
    thread::sleep(Duration::from_secs(30));
    meter.report("plain denials", denied.sent() - sent);
    println!("plain denials: {:?}", denied.stop());

    let (after, levels) = storm_for(Duration::from_secs(seconds), servers, &envoy, &honest, of_others);
    assert_levels_rise(&levels);
    // All but one level are forgiven after it stops.
    let last = levels.last().copied().expect("a ban");
    let pause = (after + (last - 1) * 60_000).saturating_sub(now_ms());
    thread::sleep(Duration::from_millis(pause));
    let storm = Clients::start(&envoy, &vec!["/storm".to_owned(); CONNECTIONS], STORM_RATE);
    let (_, level) = next_ban(&tollgate, after);
    println!("after {pause} ms: a ban of level {level}; {:?}", storm.stop());
    assert_eq!(level, 2);
    let honest = honest.stop();
    println!("honest clients: {honest:?}");
    assert_eq!(honest.keys().copied().collect::<BTreeSet<u16>>(), BTreeSet::from([200]));
}

fn now_ms() -> u64 {
    tollgate::clock::Clock::System.now().as_micros() / 1_000
}
