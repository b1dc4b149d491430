//! Utilization of Redis servers, by the CPU time of their main threads: the time that a pipelined write takes would also
//! contain the network.

use std::{collections::BTreeMap, time::Duration};

use ::redis::{Value, cmd};
use parking_lot::Mutex;
use tokio::time::{Instant, interval, timeout};
use tollgate_metrics::{Computed, Declared, MetricKind};

use super::connection::Connection;

/// Interval of the samples of a server, which the workers of a process take in turns.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);

/// Interval at which a worker checks whether a sample is due.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit of a reply.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time until another sample is requested from a server that refused one: its user may lack the permission.
const REFUSED_INTERVAL: Duration = Duration::from_secs(600);

pub(super) static UTILIZATION: Computed<1> = Computed::group(
    [Declared {
        name: "tollgate_redis_server_utilization",
        kind: MetricKind::Gauge,
        labels: &["server"],
        help: "Part of a CPU that the main thread of a Redis server used, 0 to 1.",
    }],
    |[declared], page| {
        let servers = SERVERS.lock();
        let known: Vec<_> =
            servers.iter().filter_map(|(name, server)| Some((name, server.utilization?))).collect();
        if !known.is_empty() {
            page.begin(declared);
            known.into_iter().for_each(|(name, part)| page.sample(declared, &[name], part));
        }
    },
);

/// Servers to which this process has connections.
static SERVERS: Mutex<BTreeMap<String, Server>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Default)]
struct Server {
    /// Number of workers with a connection to it.
    workers: usize,
    next_sample: Option<Instant>,
    last: Option<Sample>,
    utilization: Option<f64>,
}

/// CPU time that a server has used in its life.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    at: Instant,
    seconds: f64,
}

/// A worker's connection to a server, counted until this is dropped.
#[derive(Debug)]
struct Tracked(String);

impl Tracked {
    fn new(server: String) -> Self {
        let mut servers = SERVERS.lock();
        let entry = servers.entry(server.clone()).or_default();
        entry.workers = entry.workers.saturating_add(1);
        Self(server)
    }

    fn update<T>(&self, change: impl FnOnce(&mut Server) -> T) -> Option<T> {
        SERVERS.lock().get_mut(&self.0).map(change)
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        let mut servers = SERVERS.lock();
        if let Some(server) = servers.get_mut(&self.0) {
            server.workers = server.workers.saturating_sub(1);
            if server.workers == 0 {
                servers.remove(&self.0);
            }
        }
    }
}

impl Server {
    /// Whether the caller is to take a sample.
    fn claim(&mut self, now: Instant) -> bool {
        let is_due = self.next_sample.is_none_or(|next| next <= now);
        if is_due {
            self.next_sample = now.checked_add(SAMPLE_INTERVAL);
        }
        is_due
    }

    /// Records a sample; `None` if the server refused one.
    #[allow(clippy::float_arithmetic)] // Shown to people.
    fn record(&mut self, sample: Option<Sample>, now: Instant) {
        self.utilization = match (self.last, sample) {
            // A restarted server, or another one behind the name, counts from zero.
            (Some(last), Some(sample)) if sample.at > last.at && sample.seconds >= last.seconds => {
                let elapsed = sample.at.saturating_duration_since(last.at).as_secs_f64();
                Some((sample.seconds - last.seconds) / elapsed)
            }
            _ => None,
        };
        if sample.is_none() {
            self.next_sample = now.checked_add(REFUSED_INTERVAL);
        }
        self.last = sample;
    }
}

/// Samples the utilization of a server, until `connection` returns none.
pub(super) async fn run(server: String, connection: impl Fn() -> Option<Connection>) {
    let tracked = Tracked::new(server);
    let mut checks = interval(CHECK_INTERVAL);
    loop {
        checks.tick().await;
        let Some(connection) = connection() else { return };
        if !connection.is_up() || tracked.update(|server| server.claim(Instant::now())) != Some(true) {
            continue;
        }
        let mut command = cmd("INFO");
        command.arg("cpu");
        let reply = timeout(SAMPLE_TIMEOUT, connection.send(&command)).await;
        let now = Instant::now();
        // A late reply is no refusal: the server may be busy.
        if let Ok(reply) = reply {
            let seconds = reply.ok().as_ref().and_then(cpu_seconds);
            tracked.update(|server| server.record(seconds.map(|seconds| Sample { at: now, seconds }), now));
        }
    }
}

/// CPU time of a server's main thread, by the reply to `INFO cpu`; of all threads, before Redis 6.2.
#[allow(clippy::float_arithmetic)] // Shown to people.
fn cpu_seconds(reply: &Value) -> Option<f64> {
    let text = match reply {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
        Value::VerbatimString { text, .. } => text,
        _ => return None,
    };
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value?.trim().parse::<f64>().ok().filter(|seconds| seconds.is_finite())
    };
    let sum = |user, system| Some(field(user)? + field(system)?);
    sum("used_cpu_user_main_thread", "used_cpu_sys_main_thread")
        .or_else(|| sum("used_cpu_user", "used_cpu_sys"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# CPU\r\nused_cpu_sys:9.5\r\nused_cpu_user:20.25\r\nused_cpu_sys_children:0\r\n\
                        used_cpu_sys_main_thread:1.5\r\nused_cpu_user_main_thread:2.25\r\n";

    #[test]
    fn the_cpu_time_is_that_of_the_main_thread_if_the_server_reports_it() {
        let reply = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        assert_eq!(cpu_seconds(&reply(INFO)), Some(3.75));
        let older: String =
            INFO.lines().filter(|line| !line.contains("main_thread")).collect::<Vec<_>>().join("\r\n");
        assert_eq!(cpu_seconds(&reply(&older)), Some(29.75));
        for text in ["", "used_cpu_sys:x\r\nused_cpu_user:1", "used_cpu_user:1"] {
            assert_eq!(cpu_seconds(&reply(text)), None, "{text}");
        }
        assert_eq!(cpu_seconds(&Value::Nil), None);
    }

    #[test]
    fn the_utilization_is_the_cpu_time_between_two_samples() {
        let (mut server, started) = (Server::default(), Instant::now());
        let mut record = |second: u64, seconds: Option<f64>| {
            let at = started + Duration::from_secs(second);
            server.record(seconds.map(|seconds| Sample { at, seconds }), at);
            server.utilization
        };
        assert_eq!(record(0, Some(10.0)), None);
        assert_eq!(record(5, Some(14.0)), Some(0.8));
        assert_eq!(record(10, Some(1.0)), None, "restarted");
        assert_eq!(record(15, Some(2.0)), Some(0.2));
        assert_eq!(record(20, None), None, "refused");
    }

    #[test]
    fn workers_sample_in_turns_and_pause_after_a_refusal() {
        let (mut server, started) = (Server::default(), Instant::now());
        let at = |second| started + Duration::from_secs(second);
        assert!(server.claim(at(0)) && !server.claim(at(0)) && !server.claim(at(4)) && server.claim(at(5)));
        server.record(None, at(6));
        assert!(!server.claim(at(300)) && server.claim(at(606)));
    }

    #[test]
    fn a_server_is_listed_while_a_worker_has_a_connection() {
        let is_listed = || SERVERS.lock().contains_key("a_server_of_this_test");
        let first = Tracked::new("a_server_of_this_test".into());
        let second = Tracked::new("a_server_of_this_test".into());
        drop(first);
        assert!(is_listed());
        drop(second);
        assert!(!is_listed());
    }
}
