//! Samples of what servers report of themselves by `INFO`, and of their clocks.
//!
//! The CPU time of the main thread shows how full a server is: the time that a pipelined write takes would also contain the
//! network.

use std::{sync::Arc, time::Duration};

use ::redis::cmd;
use tokio::time::{Instant, interval, timeout};
use tollgate_core::clock::Clock;
use tollgate_metrics::{Computed, Declared, MetricKind, Page};

use super::{
    SERVERS, Server,
    info::{self, Memory, Replication},
};
use crate::{
    after,
    redis::{
        connection::{Connection, text},
        error::SendError,
    },
};

/// Interval of the samples of a server, which the workers of a process take in turns.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);

/// Samples of the CPU time for each one of everything.
const SAMPLES_PER_REPORT: u32 = 3;

/// Interval at which a worker checks whether a sample is due.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit of a reply.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time until another sample is requested from a server that refused one: its user may lack the permission.
const REFUSED_INTERVAL: Duration = Duration::from_secs(600);

/// Age from which on a sample is no longer exported, as while a server is unreachable.
const MAX_SAMPLE_AGE: Duration = Duration::from_secs(60);

/// Longest round trip after which a server's clock is compared: the difference may be wrong by half of it.
const MAX_CLOCK_ROUND_TRIP: Duration = Duration::from_millis(500);

/// Samples of a server.
#[derive(Debug, Default)]
pub(super) struct Samples {
    next: Option<Instant>,
    taken: u32,
    cpu: Option<CpuSample>,
    utilization: Option<f64>,
    report: Option<Report>,
    evictions: Evictions,
    is_refusal_logged: bool,
}

/// Keys that the servers behind a name have evicted since the first reading.
///
/// A server counts since its own start. Behind a name may be another one after a failover, with a count of its own; so
/// only differences between two readings of one process are added.
#[derive(Debug, Default)]
struct Evictions {
    /// Process of the last reading, if it reports its identifier.
    run_id: Option<Box<str>>,
    /// Its count.
    last: Option<u64>,
    total: u64,
}

impl Evictions {
    /// Adds a reading of the process with this identifier, and returns the total.
    fn add(&mut self, run_id: Option<Box<str>>, count: u64) -> u64 {
        let last = self.last.replace(count).filter(|_| self.run_id == run_id);
        let evicted = last.map_or(0, |last| count.saturating_sub(last));
        (self.run_id, self.total) = (run_id, self.total.saturating_add(evicted));
        self.total
    }
}

/// CPU time that a server has used in its life.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CpuSample {
    at: Instant,
    seconds: f64,
}

/// Figures that a server reported of itself; those that it did not report are absent.
#[derive(Clone, Copy, Debug)]
struct Report {
    at: Instant,
    memory: Option<Memory>,
    /// Keys that it evicted since its start; once recorded, since the first reading.
    evicted_keys: Option<u64>,
    replication: Option<Replication>,
    /// Seconds by which its clock is ahead of this instance's.
    clock_offset: Option<f64>,
}

/// Sample that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Cpu,
    Everything,
}

/// Reason why a server did not report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoReport {
    /// The server refused to, or its reply has another form.
    Refused,
    /// No response: the server may be busy, or disconnected.
    Silent,
}

impl Samples {
    /// The sample that the caller is to take.
    fn claim(&mut self, now: Instant) -> Option<Due> {
        if self.next.is_some_and(|next| next > now) {
            return None;
        }
        self.next = Some(after(now, SAMPLE_INTERVAL));
        let is_cpu_only = !self.taken.is_multiple_of(SAMPLES_PER_REPORT);
        self.taken = self.taken.wrapping_add(1);
        Some(if is_cpu_only { Due::Cpu } else { Due::Everything })
    }

    /// Records the CPU time. Returns whether a refusal is to be logged.
    #[allow(clippy::float_arithmetic)] // Shown to people.
    fn record_cpu(&mut self, seconds: Result<f64, NoReport>, now: Instant) -> bool {
        match seconds {
            Ok(seconds) => {
                let sample = CpuSample { at: now, seconds };
                let last = self.cpu.replace(sample);
                // A restarted server, or another one behind the name, counts from zero.
                let last = last.filter(|last| sample.at > last.at && sample.seconds >= last.seconds);
                self.utilization = last.map(|last| {
                    let elapsed = sample.at.duration_since(last.at).as_secs_f64();
                    (sample.seconds - last.seconds) / elapsed
                });
                false
            }
            // The next sample is to be complete.
            Err(NoReport::Silent) => {
                self.taken = 0;
                false
            }
            Err(NoReport::Refused) => {
                (self.cpu, self.utilization, self.report, self.taken) = (None, None, None, 0);
                self.next = Some(after(now, REFUSED_INTERVAL));
                !std::mem::replace(&mut self.is_refusal_logged, true)
            }
        }
    }

    /// Records a report of the process with this identifier.
    fn record(&mut self, mut report: Report, run_id: Option<Box<str>>) {
        report.evicted_keys = report.evicted_keys.map(|count| self.evictions.add(run_id, count));
        self.report = Some(report);
    }

    /// The utilization, and the report, unless they are too old.
    fn recent(&self, now: Instant) -> (Option<f64>, Option<&Report>) {
        let is_recent = |at: Instant| now.duration_since(at) <= MAX_SAMPLE_AGE;
        let utilization = self.utilization.filter(|_| self.cpu.is_some_and(|cpu| is_recent(cpu.at)));
        (utilization, self.report.as_ref().filter(|report| is_recent(report.at)))
    }
}

/// Samples a server, until `connection` returns none.
pub(in crate::redis) async fn run(server: Arc<Server>, connection: impl Fn() -> Option<Connection>) {
    let mut checks = interval(CHECK_INTERVAL);
    loop {
        checks.tick().await;
        let Some(connection) = connection() else { return };
        if !connection.is_up() {
            continue;
        }
        let due = server.update(|entry| entry.samples.claim(Instant::now())).flatten();
        let Some(due) = due else { continue };
        let cpu = section(&connection, "cpu", info::cpu_seconds).await;
        let now = Instant::now();
        if server.update(|entry| entry.samples.record_cpu(cpu, now)) == Some(true) {
            tracing::info!(%server, "Redis refused INFO; server metrics are missing");
        }
        if due == Due::Everything && cpu.is_ok() {
            let run_id = section(&connection, "server", info::run_id).await.ok();
            let report = report(&connection).await;
            server.update(|entry| entry.samples.record(report, run_id));
        }
    }
}

async fn report(connection: &Connection) -> Report {
    let memory = section(connection, "memory", info::memory).await.ok();
    let evicted_keys = section(connection, "stats", info::evicted_keys).await.ok();
    let replication = section(connection, "replication", info::replication).await.ok();
    let clock_offset = clock_offset(connection).await;
    Report { at: Instant::now(), memory, evicted_keys, replication, clock_offset }
}

/// Reads a section of `INFO`. One command has one section: Redis 6 accepts no more.
async fn section<T>(
    connection: &Connection,
    name: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, NoReport> {
    let mut command = cmd("INFO");
    command.arg(name);
    match timeout(SAMPLE_TIMEOUT, connection.send(&command)).await {
        Ok(Ok(reply)) => text(&reply).and_then(read).ok_or(NoReport::Refused),
        Ok(Err(SendError::Failed(error))) if error.code().is_some() => Err(NoReport::Refused),
        Ok(Err(_)) | Err(_) => Err(NoReport::Silent),
    }
}

/// Seconds by which the server's clock is ahead of this instance's, if that can be measured.
async fn clock_offset(connection: &Connection) -> Option<f64> {
    // In this order, so that a pause in between counts as a part of the round trip.
    let began = Instant::now();
    let sent_at = Clock::System.now();
    let reply = timeout(SAMPLE_TIMEOUT, connection.send(&cmd("TIME"))).await.ok()?.ok()?;
    offset(Duration::from_micros(sent_at.as_micros()), began.elapsed(), info::time(&reply)?)
}

/// Seconds by which a clock that showed `server` within a round trip is ahead of the own one, which showed `sent_at` at its
/// begin.
#[allow(clippy::float_arithmetic)] // Shown to people.
fn offset(sent_at: Duration, round_trip: Duration, server: Duration) -> Option<f64> {
    if round_trip > MAX_CLOCK_ROUND_TRIP {
        return None;
    }
    let own = sent_at.saturating_add(round_trip.checked_div(2)?);
    let ahead = server.saturating_sub(own).as_secs_f64();
    Some(ahead - own.saturating_sub(server).as_secs_f64())
}

const fn declare(kind: MetricKind, name: &'static str, help: &'static str) -> Declared {
    Declared { name, kind, labels: &["server"], help }
}

const fn gauge(name: &'static str, help: &'static str) -> Declared {
    declare(MetricKind::Gauge, name, help)
}

pub(in crate::redis) static REPORTED: Computed<9> = Computed::group(
    [
        gauge(
            "tollgate_redis_server_utilization",
            "Part of a CPU that the main thread of a Redis server used, 0 to 1.",
        ),
        gauge("tollgate_redis_server_memory_used_bytes", "Memory that a Redis server uses, in bytes."),
        gauge(
            "tollgate_redis_server_memory_max_bytes",
            "Maximum memory of a Redis server, in bytes; 0 without one.",
        ),
        declare(
            MetricKind::Counter,
            "tollgate_redis_server_evicted_keys_total",
            "Keys that a Redis server evicted because its memory was full, since this instance first read their number.",
        ),
        gauge(
            "tollgate_redis_server_replication_offset_bytes",
            "Bytes that a Redis server has written to its replication stream.",
        ),
        Declared {
            name: "tollgate_redis_server_replicas",
            kind: MetricKind::Gauge,
            labels: &["state", "server"],
            help: "Replicas of a Redis server by state.",
        },
        gauge(
            "tollgate_redis_server_replication_lag_bytes",
            "Bytes of the replication stream that the slowest replica of a Redis server has not acknowledged.",
        ),
        gauge(
            "tollgate_redis_server_replication_lag_seconds",
            "Time since the last acknowledgement of the slowest replica of a Redis server, in seconds.",
        ),
        gauge(
            "tollgate_redis_server_clock_offset_seconds",
            "Clock of a Redis server minus that of this instance, in seconds.",
        ),
    ],
    write,
);

fn write(declared: &[Declared; 9], page: &mut Page) {
    let now = Instant::now();
    let servers = SERVERS.lock();
    let recent: Vec<_> = servers
        .iter()
        .map(|(name, entry)| (&**name, entry.samples.recent(now)))
        .filter(|(_, (utilization, report))| utilization.is_some() || report.is_some())
        .collect();
    let [utilization, used, max, evicted, replicated, replicas, lag_bytes, lag_seconds, clock] = declared;
    let mut each = |declared: &Declared, value: fn(&Report) -> Option<f64>| {
        let known = recent.iter().filter_map(|(name, (_, report))| Some((*name, value((*report)?)?)));
        samples(page, declared, known);
    };
    each(used, |report| Some(report.memory?.used as f64));
    each(max, |report| Some(report.memory?.max as f64));
    each(evicted, |report| Some(report.evicted_keys? as f64));
    each(replicated, |report| Some(report.replication?.offset as f64));
    each(lag_bytes, |report| Some(report.replication?.lag?.bytes as f64));
    each(lag_seconds, |report| Some(report.replication?.lag?.seconds as f64));
    each(clock, |report| report.clock_offset);
    samples(page, utilization, recent.iter().filter_map(|(name, (part, _))| Some((*name, (*part)?))));
    let mut is_begun = false;
    for (name, (_, report)) in &recent {
        let Some(replication) = report.and_then(|report| report.replication) else { continue };
        if !std::mem::replace(&mut is_begun, true) {
            page.begin(replicas);
        }
        page.sample(replicas, &["online", name], replication.online);
        page.sample(replicas, &["syncing", name], replication.syncing);
    }
}

/// Writes the samples of a metric, if there are any.
fn samples<'a>(page: &mut Page, declared: &Declared, known: impl Iterator<Item = (&'a str, f64)>) {
    let mut known = known.peekable();
    if known.peek().is_some() {
        page.begin(declared);
        known.for_each(|(name, value)| page.sample(declared, &[name], value));
    }
}

#[cfg(test)]
mod tests;
