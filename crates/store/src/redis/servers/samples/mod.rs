//! Samples of what servers report of themselves, and of their clocks.
//!
//! The CPU time of the main thread shows how full a server is: the time that a pipelined write takes would also contain the
//! network.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_metrics::{Computed, Declared, Page};

use super::SERVERS;
use crate::after;

/// Interval of the samples of a server, which the workers of a process take in turns.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);

/// Samples of the CPU time for each one of everything.
const SAMPLES_PER_REPORT: u32 = 3;

/// Time until another sample is requested from a server that refused one: its user may lack the permission.
const REFUSED_INTERVAL: Duration = Duration::from_secs(600);

/// Age from which on a sample is no longer exported, as while a server is unreachable.
const MAX_SAMPLE_AGE: Duration = Duration::from_secs(60);

/// Samples of a server.
#[derive(Debug, Default)]
pub(in crate::redis) struct Samples {
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

/// Memory of a server, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::redis) struct Memory {
    pub(in crate::redis) used: u64,
    /// Its limit; 0 without one.
    pub(in crate::redis) max: u64,
}

/// Replication of a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::redis) struct Replication {
    /// Bytes written to its replication stream.
    pub(in crate::redis) offset: u64,
    /// Replicas that receive the stream, and those that load a snapshot before.
    pub(in crate::redis) online: u64,
    pub(in crate::redis) syncing: u64,
    /// The furthest behind of the replicas that receive the stream, if any does.
    pub(in crate::redis) lag: Option<ReplicaLag>,
}

/// Distance of a replica from its master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::redis) struct ReplicaLag {
    /// Bytes that it has not acknowledged.
    pub(in crate::redis) bytes: u64,
    /// Time since its last acknowledgement, which it sends every second.
    pub(in crate::redis) seconds: u64,
}

/// Figures that a server reported of itself; those that it did not report are absent.
#[derive(Clone, Copy, Debug)]
pub(in crate::redis) struct Report {
    pub(in crate::redis) at: Instant,
    pub(in crate::redis) memory: Option<Memory>,
    /// Keys that it evicted since its start; once recorded, since the first reading.
    pub(in crate::redis) evicted_keys: Option<u64>,
    pub(in crate::redis) replication: Option<Replication>,
    /// Seconds by which its clock is ahead of this instance's.
    pub(in crate::redis) clock_offset: Option<f64>,
}

/// Sample that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::redis) enum Due {
    Cpu,
    Everything,
}

/// Reason why a server did not report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::redis) enum NoReport {
    /// The server refused to, or its reply has another form.
    Refused,
    /// No response: the server may be busy, or disconnected.
    Silent,
}

impl Samples {
    /// The sample that the caller is to take.
    pub(in crate::redis) fn claim(&mut self, now: Instant) -> Option<Due> {
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
    pub(in crate::redis) fn record_cpu(&mut self, seconds: Result<f64, NoReport>, now: Instant) -> bool {
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
    pub(in crate::redis) fn record(&mut self, mut report: Report, run_id: Option<Box<str>>) {
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

const fn gauge(name: &'static str, help: &'static str) -> Declared {
    Declared::gauge(name, &["server"], help)
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
        Declared::counter(
            "tollgate_redis_server_evicted_keys_total",
            &["server"],
            "Keys that a Redis server evicted because its memory was full, since this instance first read their number.",
        ),
        gauge(
            "tollgate_redis_server_replication_offset_bytes",
            "Bytes that a Redis server has written to its replication stream.",
        ),
        Declared::gauge(
            "tollgate_redis_server_replicas",
            &["state", "server"],
            "Replicas of a Redis server by state.",
        ),
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
