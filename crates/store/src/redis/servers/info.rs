//! Replies to `INFO` and `TIME`.

use std::time::Duration;

use ::redis::Value;

use crate::redis::connection::text;

/// Memory of a server, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) used: u64,
    /// Its limit; 0 without one.
    pub(super) max: u64,
}

/// Replication of a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Replication {
    /// Bytes written to its replication stream.
    pub(super) offset: u64,
    /// Replicas that receive the stream, and those that load a snapshot before.
    pub(super) online: u64,
    pub(super) syncing: u64,
    /// The furthest behind of the replicas that receive the stream, if any does.
    pub(super) lag: Option<ReplicaLag>,
}

/// Distance of a replica from its master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplicaLag {
    /// Bytes that it has not acknowledged.
    pub(super) bytes: u64,
    /// Time since its last acknowledgement, which it sends every second.
    pub(super) seconds: u64,
}

pub(in crate::redis) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim)
}

fn number(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.parse().ok()
}

/// CPU time of a server's main thread in seconds, by the text of `INFO cpu`; of all threads, before Redis 6.2.
#[allow(clippy::float_arithmetic)] // Shown to people.
pub(super) fn cpu_seconds(text: &str) -> Option<f64> {
    let seconds = |name| field(text, name)?.parse::<f64>().ok().filter(|seconds| seconds.is_finite());
    let sum = |user, system| Some(seconds(user)? + seconds(system)?);
    sum("used_cpu_user_main_thread", "used_cpu_sys_main_thread")
        .or_else(|| sum("used_cpu_user", "used_cpu_sys"))
}

/// Reads the text of `INFO memory`.
pub(super) fn memory(text: &str) -> Option<Memory> {
    Some(Memory { used: number(text, "used_memory")?, max: number(text, "maxmemory").unwrap_or(0) })
}

/// Keys that a server evicted since its start, by the text of `INFO stats`.
pub(super) fn evicted_keys(text: &str) -> Option<u64> {
    number(text, "evicted_keys")
}

/// Identifier of a server's process, by the text of `INFO server`.
pub(super) fn run_id(text: &str) -> Option<Box<str>> {
    field(text, "run_id").map(Box::from)
}

/// Reads the text of `INFO replication`; `None` unless the server is a master.
#[allow(clippy::arithmetic_side_effects)] // Numbers of lines.
pub(super) fn replication(text: &str) -> Option<Replication> {
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
pub(super) fn time(reply: &Value) -> Option<Duration> {
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
