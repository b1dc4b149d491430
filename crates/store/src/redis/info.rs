//! The task that samples a server by `INFO` and `TIME`, and the reading of the replies.

use std::{sync::Arc, time::Duration};

use ::redis::{Value, cmd};
use tokio::time::{Instant, interval, timeout};
use tollgate_core::clock::Clock;

use super::servers::{Due, Memory, NoReport, ReplicaLag, Replication, Report, Server};
use super::{connect::text, connection::Connection, error::SendError};

/// Interval at which a worker checks whether a sample is due.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit of a reply.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest round trip after which a server's clock is compared: the difference may be wrong by half of it.
const MAX_CLOCK_ROUND_TRIP: Duration = Duration::from_millis(500);

/// Samples a server, until `connection` returns none.
pub(super) async fn sample(server: Arc<Server>, connection: impl Fn() -> Option<Connection>) {
    let mut checks = interval(CHECK_INTERVAL);
    loop {
        checks.tick().await;
        let Some(connection) = connection() else { return };
        if !connection.is_up() {
            continue;
        }
        let due = server.update(|entry| entry.samples.claim(Instant::now())).flatten();
        let Some(due) = due else { continue };
        let cpu = section(&connection, "cpu", cpu_seconds).await;
        let now = Instant::now();
        if server.update(|entry| entry.samples.record_cpu(cpu, now)) == Some(true) {
            tracing::info!(%server, "Redis refused INFO; server metrics are missing");
        }
        if due == Due::Everything && cpu.is_ok() {
            let run_id = section(&connection, "server", run_id).await.ok();
            let report = report(&connection).await;
            server.update(|entry| entry.samples.record(report, run_id));
        }
    }
}

async fn report(connection: &Connection) -> Report {
    let memory = section(connection, "memory", memory).await.ok();
    let evicted_keys = section(connection, "stats", evicted_keys).await.ok();
    let replication = section(connection, "replication", replication).await.ok();
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
    offset(Duration::from_micros(sent_at.as_micros()), began.elapsed(), time(&reply)?)
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

pub(super) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim)
}

fn number(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.parse().ok()
}

/// CPU time of a server's main thread in seconds, by the text of `INFO cpu`; of all threads, before Redis 6.2.
#[allow(clippy::float_arithmetic)] // Shown to people.
fn cpu_seconds(text: &str) -> Option<f64> {
    let seconds = |name| field(text, name)?.parse::<f64>().ok().filter(|seconds| seconds.is_finite());
    let sum = |user, system| Some(seconds(user)? + seconds(system)?);
    sum("used_cpu_user_main_thread", "used_cpu_sys_main_thread")
        .or_else(|| sum("used_cpu_user", "used_cpu_sys"))
}

/// Reads the text of `INFO memory`.
fn memory(text: &str) -> Option<Memory> {
    Some(Memory { used: number(text, "used_memory")?, max: number(text, "maxmemory").unwrap_or(0) })
}

/// Keys that a server evicted since its start, by the text of `INFO stats`.
fn evicted_keys(text: &str) -> Option<u64> {
    number(text, "evicted_keys")
}

/// Identifier of a server's process, by the text of `INFO server`.
fn run_id(text: &str) -> Option<Box<str>> {
    field(text, "run_id").map(Box::from)
}

/// Reads the text of `INFO replication`; `None` unless the server is a master.
#[allow(clippy::arithmetic_side_effects)] // Numbers of lines.
fn replication(text: &str) -> Option<Replication> {
    if field(text, "role") != Some("master") {
        return None;
    }
    let offset = number(text, "master_repl_offset")?;
    let mut found = Replication { offset, ..Replication::default() };
    // As `slave0:ip=10.0.0.1,port=6379,state=online,offset=71,lag=0`.
    let replicas = text.lines().filter_map(|line| line.strip_prefix("slave")?.split_once(':'));
    for (_, replica) in replicas.filter(|(at, _)| at.bytes().all(|byte| byte.is_ascii_digit())) {
        let part = |name: &str| {
            replica.trim().split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
        };
        if part("state") != Some("online") {
            found.syncing += 1;
            continue;
        }
        found.online += 1;
        let count = |name| part(name)?.parse::<u64>().ok();
        if let (Some(acknowledged), Some(seconds)) = (count("offset"), count("lag")) {
            let bytes = offset.saturating_sub(acknowledged);
            let furthest = found.lag.unwrap_or(ReplicaLag { bytes, seconds });
            found.lag =
                Some(ReplicaLag { bytes: furthest.bytes.max(bytes), seconds: furthest.seconds.max(seconds) });
        }
    }
    Some(found)
}

/// The time of a reply to `TIME`, since the Unix epoch.
fn time(reply: &Value) -> Option<Duration> {
    let Value::Array(parts) = reply else { return None };
    let number = |part: &Value| match part {
        Value::Int(number) => u64::try_from(*number).ok(),
        part => text(part)?.parse::<u64>().ok(),
    };
    let [seconds, micros] = parts.as_slice() else { return None };
    Duration::from_secs(number(seconds)?).checked_add(Duration::from_micros(number(micros)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_offset_counts_half_of_the_round_trip() {
        let (own, ms) = (Duration::from_secs(1_000), Duration::from_millis);
        assert_eq!(offset(own, ms(100), own + ms(50)), Some(0.0));
        assert_eq!(offset(own, ms(100), own + ms(2_050)), Some(2.0));
        assert_eq!(offset(own, ms(0), own - ms(250)), Some(-0.25));
        assert_eq!(offset(own, ms(501), own), None, "too slow to be accurate");
    }

    #[test]
    fn the_cpu_time_is_that_of_the_main_thread_if_the_server_reports_it() {
        let info = "# CPU\r\nused_cpu_sys:9.5\r\nused_cpu_user:20.25\r\nused_cpu_sys_children:0\r\n\
                    used_cpu_sys_main_thread:1.5\r\nused_cpu_user_main_thread:2.25\r\n";
        assert_eq!(cpu_seconds(info), Some(3.75));
        let older: String =
            info.lines().filter(|line| !line.contains("main_thread")).collect::<Vec<_>>().join("\r\n");
        assert_eq!(cpu_seconds(&older), Some(29.75));
        for text in ["", "used_cpu_sys:x\r\nused_cpu_user:1", "used_cpu_user:1"] {
            assert_eq!(cpu_seconds(text), None, "{text}");
        }
    }

    #[test]
    fn memory_and_evictions_are_read() {
        let info = "# Memory\r\nused_memory:1048576\r\nused_memory_human:1.00M\r\nmaxmemory:0\r\n\
                    maxmemory_policy:noeviction\r\n";
        assert_eq!(memory(info), Some(Memory { used: 1 << 20, max: 0 }));
        assert_eq!(memory(&info.replace("maxmemory:0", "maxmemory:7")).map(|memory| memory.max), Some(7));
        assert_eq!(memory("used_memory:x\r\n"), None);
        assert_eq!(evicted_keys("# Stats\r\nexpired_keys:3\r\nevicted_keys:12\r\n"), Some(12));
        assert_eq!(evicted_keys("expired_keys:3\r\n"), None);
        assert_eq!(run_id("# Server\r\nredis_version:7.0.15\r\nrun_id:1fe2\r\n").as_deref(), Some("1fe2"));
        assert_eq!(run_id("redis_version:7.0.15\r\n"), None);
    }

    #[test]
    fn the_replica_that_is_furthest_behind_determines_the_lag() {
        let head = "# Replication\r\nrole:master\r\nconnected_slaves:3\r\n";
        let tail = "slave_read_repl_offset:9\r\nmaster_replid:abc\r\nmaster_repl_offset:1000\r\nsecond_repl_offset:-1\r\n";
        let replica = |at: usize, state: &str, offset: u64, lag: u64| {
            format!("slave{at}:ip=10.0.0.{at},port=6379,state={state},offset={offset},lag={lag}\r\n")
        };
        let read = |replicas: &[String]| replication(&format!("{head}{}{tail}", replicas.concat()));
        let found = read(&[
            replica(0, "online", 990, 0),
            replica(1, "online", 940, 0),
            replica(2, "online", 995, 7),
            replica(3, "wait_bgsave", 0, 0),
        ]);
        let lag = Some(ReplicaLag { bytes: 60, seconds: 7 });
        assert_eq!(found, Some(Replication { offset: 1000, online: 3, syncing: 1, lag }));
        let alone = Replication { offset: 1000, ..Replication::default() };
        assert_eq!(read(&[]), Some(alone));
        // It may acknowledge more than the text states, which is of a moment before.
        assert_eq!(
            read(&[replica(0, "online", 1_001, 0)]).and_then(|found| found.lag),
            Some(ReplicaLag { bytes: 0, seconds: 0 })
        );
        assert_eq!(replication("role:slave\r\nmaster_repl_offset:1\r\n"), None);
        assert_eq!(replication("role:master\r\n"), None);
    }

    #[test]
    fn the_time_has_seconds_and_microseconds() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let expected = Some(Duration::from_micros(1_700_000_000_000_007));
        assert_eq!(time(&Value::Array(vec![bulk("1700000000"), bulk("7")])), expected);
        for reply in [Value::Nil, Value::Array(vec![bulk("1")]), Value::Array(vec![bulk("x"), bulk("1")])] {
            assert_eq!(time(&reply), None, "{reply:?}");
        }
        assert_eq!(text(&Value::Nil), None);
        assert_eq!(text(&bulk("a:1")), Some("a:1"));
    }
}
