//! Instances behind an Envoy are replaced one after the other, as Kubernetes does it, and callers notice nothing.

use std::str::FromStr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval};

use super::*;

const RULES: &str = "\
domain: edge
descriptors:
- key: path
  rate_limit: {unit: second, requests_per_unit: 200}
";

/// Callers, each with a connection of its own.
const CALLERS: u32 = 16;

/// The value of a variable, for a run at full length.
fn stated<T: FromStr>(variable: &str, short: T) -> T {
    env::var(variable).ok().map_or(short, |text| text.parse().ok().expect("a number"))
}

/// An Envoy whose requests fail unless tollgate decides them, before three places for instances.
struct Front {
    envoy: Envoy,
    places: [u16; 3],
    config: TempDir,
}

impl Front {
    /// Two instances run, one place is free.
    fn start(flags: &[&str]) -> (Self, [Tollgate; 2]) {
        let config = rules(RULES);
        let places = std::array::from_fn(|_| free_port());
        let instances = [places[0], places[1]].map(|port| instance(config.path(), port, flags));
        let endpoint = |port: u16| {
            let address = format!("socket_address: {{address: 127.0.0.1, port_value: {port}}}");
            format!("        - endpoint:\n            address:\n              {address}\n")
        };
        let more = endpoint(places[1]) + &endpoint(places[2]);
        let mut bootstrap = Bootstrap::read("fail_closed", places[0], None)
            // As quick as a test has to be; the proportions stay.
            .with(
                "interval: 2s\n      no_traffic_interval: 2s",
                "interval: 0.25s\n      no_traffic_interval: 0.25s",
            );
        bootstrap.yaml.push_str(&more);
        let envoy = bootstrap.run(&[places[0], places[1]]);
        (Self { envoy, places, config }, instances)
    }

    /// Starts an instance in the free place, waits until Envoy uses it, then stops the other one in order.
    fn replace(&self, old: &mut Tollgate, flags: &[&str], free: u16) -> Tollgate {
        let new = instance(self.config.path(), free, flags);
        self.envoy.wait_for(&format!("tollgate::127.0.0.1:{free}::health_flags::healthy"));
        old.signal("TERM");
        assert_eq!(old.wait(), Some(0));
        new
    }
}

/// An instance in that place.
fn instance(config: &Path, place: u16, flags: &[&str]) -> Tollgate {
    let instance = Tollgate::spawn_at(place, command(), config, flags);
    instance.wait_until_ready();
    instance
}

/// Sends `rate` requests a second until `stop`, and counts the statuses of the answers.
async fn send(port: u16, rate: u32, stop: Arc<AtomicBool>) -> BTreeMap<u16, u64> {
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let stop = Arc::clone(&stop);
        callers.spawn(async move {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("Envoy listens");
            let mut ticks = interval(Duration::from_secs(1) * CALLERS / rate);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let mut statuses: BTreeMap<u16, u64> = BTreeMap::new();
            while !stop.load(Ordering::Relaxed) {
                ticks.tick().await;
                *statuses.entry(get(&mut stream).await).or_default() += 1;
            }
            statuses
        });
    }
    let mut all: BTreeMap<u16, u64> = BTreeMap::new();
    for statuses in callers.join_all().await {
        for (status, count) in statuses {
            *all.entry(status).or_default() += count;
        }
    }
    all
}

/// The status of one request on a connection that stays.
async fn get(stream: &mut TcpStream) -> u16 {
    stream.write_all(b"GET /login HTTP/1.1\r\nhost: edge\r\n\r\n").await.expect("sent");
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut buffer).await.expect("read");
        assert!(read > 0, "Envoy closed the connection");
        text.push_str(std::str::from_utf8(&buffer[..read]).expect("a text"));
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().expect("a number"));
        if body.len() >= length {
            return text[9..12].parse().expect("a status");
        }
    }
}

/// Results of callers while each instance is replaced `rounds` times.
async fn replaced(flags: &[&str], rounds: usize, rate: u32) -> BTreeMap<u16, u64> {
    let flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
    let words = flags.clone();
    let started = spawn_blocking(move || Front::start(&words.iter().map(String::as_str).collect::<Vec<_>>()));
    let (front, [mut first, mut second]) = started.await.expect("started");
    let stop = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn(send(front.envoy.port, rate, Arc::clone(&stop)));
    let begun = Instant::now();
    let replacing = spawn_blocking(move || {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut free = front.places[2];
        for _ in 0..rounds {
            for instance in [&mut first, &mut second] {
                let left = instance.grpc_port;
                *instance = front.replace(instance, &flags, free);
                free = left;
            }
        }
        // Until here, as they are used by the callers.
        (front, first, second)
    });
    let held = replacing.await.expect("replaced");
    stop.store(true, Ordering::Relaxed);
    let statuses = load.await.expect("no caller failed");
    println!(
        "{} restarts in {:.1} s at {rate} requests a second: {statuses:?}",
        2 * rounds,
        begun.elapsed().as_secs_f64()
    );
    drop(held);
    statuses
}

/// Without and with counters that outlive each instance. `RESTART_ROUNDS` and `RESTART_RATE` make it longer and harder.
#[tokio::test]
async fn a_rolling_restart_is_not_noticed() {
    let redis = Redis::start();
    // Errors of the store are seen here, and a machine that is busy with tests may be slow.
    let flags = ["--drain-delay", "1500ms", "--store", &redis.url(), "--store-timeout", "5s"];
    is_not_noticed(&flags[..2]).await;
    is_not_noticed(&flags).await;
}

async fn is_not_noticed(flags: &[&str]) {
    let (rounds, rate) = (stated("RESTART_ROUNDS", 1), stated("RESTART_RATE", 600));
    let statuses = replaced(flags, rounds, rate).await;
    assert!(statuses.keys().all(|status| [200, 429].contains(status)), "{statuses:?}");
    assert!(statuses.len() == 2, "no limit was met: {statuses:?}");
}

/// The purpose of the delay; and evidence that the test above would detect its absence.
#[tokio::test]
async fn without_a_delay_callers_notice() {
    let statuses = replaced(&[], 1, 600).await;
    assert!(statuses.get(&503).is_some_and(|lost| *lost > 0), "{statuses:?}");
}

/// The reason why the autoscaler removes one pod at a time: with less than half of the known hosts healthy, Envoy's
/// panic mode also uses removed ones.
#[test]
fn callers_notice_when_more_than_half_are_replaced_at_once() {
    let (front, [mut first, _second]) = Front::start(&["--drain-delay", "1500ms"]);
    let lost = || (0..60).filter(|_| front.envoy.get("/login").status == 503).count();
    assert_eq!(lost(), 0, "one of three is missing");
    first.signal("TERM");
    assert_eq!(first.wait(), Some(0));
    assert_ne!(lost(), 0, "two of three are missing");
}
