use std::io::{BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::{sync::Arc, thread};

use tokio::time::timeout;
use tollgate_core::clock::Clock;
use tollgate_metrics::Metric as _;

use super::*;
use crate::redis::connection::{self, Connection};
use crate::redis::{batch::tests::read_command, info, script::CommandKeys, servers::Server, targets::Target};

#[test]
fn the_utilization_is_the_cpu_time_between_two_samples() {
    let (mut samples, started) = (Samples::default(), Instant::now());
    let mut record = |second: u64, seconds: Result<f64, NoReport>| {
        samples.record_cpu(seconds, started + Duration::from_secs(second));
        samples.utilization
    };
    assert_eq!(record(0, Ok(10.0)), None);
    assert_eq!(record(5, Ok(14.0)), Some(0.8));
    assert_eq!(record(10, Ok(1.0)), None, "restarted");
    assert_eq!(record(15, Ok(2.0)), Some(0.2));
    assert_eq!(record(20, Err(NoReport::Silent)), Some(0.2), "busy");
    assert_eq!(record(25, Ok(4.0)), Some(0.2));
    assert_eq!(record(30, Err(NoReport::Refused)), None);
}

#[test]
fn evictions_count_from_the_first_reading_of_each_process() {
    let mut evictions = Evictions::default();
    let mut totals = |readings: &[(&str, u64)]| {
        let add = |(run_id, count): &(&str, u64)| {
            evictions.add((!run_id.is_empty()).then(|| Box::from(*run_id)), *count)
        };
        readings.iter().map(add).collect::<Vec<_>>()
    };
    assert_eq!(totals(&[("a", 100), ("a", 100), ("a", 110)]), [0, 0, 10], "those of before are not counted");
    // Failovers to a server with a lower count, and to one with a higher one.
    assert_eq!(totals(&[("b", 5), ("b", 6), ("a", 200), ("a", 203)]), [10, 11, 11, 14]);
    // Servers that report no identifier: a lower count is that of a restarted or another one.
    assert_eq!(totals(&[("", 300), ("", 302), ("", 1), ("", 2)]), [14, 16, 16, 17]);
}

#[test]
fn workers_sample_in_turns_and_every_third_sample_is_complete() {
    let (mut samples, started) = (Samples::default(), Instant::now());
    let mut claim = |second| samples.claim(started + Duration::from_secs(second));
    assert_eq!([claim(0), claim(0), claim(4)], [Some(Due::Everything), None, None]);
    assert_eq!([claim(5), claim(9), claim(11)], [Some(Due::Cpu), None, Some(Due::Cpu)]);
    assert_eq!([claim(16), claim(21)], [Some(Due::Everything), Some(Due::Cpu)]);
    assert!(!samples.record_cpu(Err(NoReport::Silent), started + Duration::from_secs(22)));
    assert_eq!(samples.claim(started + Duration::from_secs(26)), Some(Due::Everything), "it was not");
}

#[test]
fn a_refusal_is_logged_once_and_pauses_the_samples() {
    let (mut samples, started) = (Samples::default(), Instant::now());
    let at = |second| started + Duration::from_secs(second);
    assert_eq!(samples.claim(at(0)), Some(Due::Everything));
    assert!(samples.record_cpu(Err(NoReport::Refused), at(1)));
    assert_eq!(samples.claim(at(600)), None);
    assert_eq!(samples.claim(at(601)), Some(Due::Everything));
    assert!(!samples.record_cpu(Err(NoReport::Refused), at(601)));
    assert!(!samples.record_cpu(Err(NoReport::Silent), at(1_300)));
}

#[test]
fn reports_are_exported_by_server_until_they_are_old() {
    let name = "a_server_that_reports:1";
    let server = Server::new(name);
    let shown = || {
        let mut page = Page::default();
        REPORTED.write(&mut page);
        let label = format!("server=\"{name}\"}}");
        let lines = page.into_text();
        let values = lines.lines().filter_map(|line| {
            let (metric, value) = line.split_once(&label)?;
            Some(format!("{}{value}", metric.strip_prefix("tollgate_redis_server_")?))
        });
        values.collect::<Vec<_>>()
    };
    assert!(shown().is_empty());
    let (now, lag) = (Instant::now(), Some(ReplicaLag { bytes: 60, seconds: 2 }));
    let report = Report {
        at: now,
        memory: Some(Memory { used: 900, max: 1_000 }),
        evicted_keys: Some(3),
        replication: Some(Replication { offset: 70, online: 1, syncing: 0, lag }),
        clock_offset: Some(-0.5),
    };
    server.update(|entry| {
        entry.samples.report = Some(report);
        entry.samples.cpu = Some(CpuSample { at: now, seconds: 1.0 });
        entry.samples.utilization = Some(0.25);
    });
    let expected = [
        "memory_used_bytes{ 900",
        "memory_max_bytes{ 1000",
        "evicted_keys_total{ 3",
        "replication_offset_bytes{ 70",
        "replication_lag_bytes{ 60",
        "replication_lag_seconds{ 2",
        "clock_offset_seconds{ -0.5",
        "utilization{ 0.25",
        "replicas{state=\"online\", 1",
        "replicas{state=\"syncing\", 0",
    ];
    assert_eq!(shown(), expected);
    let is_shown_at =
        |age: Duration| server.update(|entry| entry.samples.recent(now + age).1.is_some()) == Some(true);
    assert!(is_shown_at(MAX_SAMPLE_AGE) && !is_shown_at(MAX_SAMPLE_AGE + Duration::from_secs(1)));
    drop(server);
    assert!(shown().is_empty(), "it has left");
}

/// Answers the commands of a connection, with a clock that is two seconds ahead.
fn serve(mut stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let command = read_command(&mut reader)?;
        let words: Vec<&str> = command.iter().map(|word| str::from_utf8(word).expect("a word")).collect();
        let text = match words.as_slice() {
            ["INFO", "cpu"] => "used_cpu_sys:1\r\nused_cpu_user:1\r\n",
            ["INFO", "memory"] => "used_memory:7\r\nmaxmemory:9\r\n",
            ["INFO", "server"] => "run_id:1fe2\r\n",
            ["INFO", "stats"] => "evicted_keys:3\r\n",
            ["INFO", "replication"] => "role:master\r\nmaster_repl_offset:5\r\n",
            _ => "",
        };
        let time = Clock::System.now().plus(Duration::from_secs(2));
        let (seconds, micros) = (time.seconds().to_string(), time.subsec_micros().to_string());
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let reply = match words.first() {
            Some(&"INFO") => bulk(text),
            Some(&"TIME") => format!("*2\r\n{}{}", bulk(&seconds), bulk(&micros)),
            _ => "+OK\r\n".to_owned(),
        };
        stream.write_all(reply.as_bytes()).ok()?;
    }
}

#[tokio::test]
async fn a_server_is_sampled_by_its_connection_and_its_clock_is_compared() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(&stream));
        }
    });
    let client = ::redis::Client::open(format!("redis://{address}")).expect("a URL");
    let server = Server::new(&address.to_string());
    let target = Target::Server(Box::new(client), &[CommandKeys::NoSlots]);
    let connection = Connection::open(target, Arc::clone(&server), connection::failure_lines());
    let sampling = tokio::spawn(info::sample(Arc::clone(&server), move || Some(connection.clone())));
    // The first one is taken within a second, unless a round trip takes too long.
    let complete = async {
        loop {
            let report = server.update(|entry| entry.samples.report).flatten();
            match report.filter(|report| report.clock_offset.is_some()) {
                Some(report) => return report,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let report = timeout(Duration::from_secs(60), complete).await.expect("a report");
    sampling.abort();
    assert_eq!(report.memory, Some(Memory { used: 7, max: 9 }));
    assert_eq!(report.evicted_keys, Some(0), "the 3 were evicted before");
    let known = server.update(|entry| (entry.samples.evictions.run_id.clone(), entry.samples.evictions.last));
    assert_eq!(known, Some((Some("1fe2".into()), Some(3))));
    assert_eq!(report.replication, Some(Replication { offset: 5, ..Replication::default() }));
    // Wrong by half of the longest round trip at most.
    assert!(report.clock_offset.is_some_and(|ahead| (ahead - 2.0).abs() <= 0.3), "{report:?}");
}
