//! Faults of a single Redis, and of the network to it.

use redis::Cmd;

use super::{
    harness::{Harness, Profile, Times, names},
    samples::{Samples, millis},
    table::ReportRow,
    *,
};

/// Answers that come at once don't wait for a server.
fn at_once(profile: &Profile) -> Duration {
    profile.normal_p99
}

fn execute(redis: &Redis, command: &Cmd) {
    command.exec(&mut redis.connect_as("default", "")).expect("executed");
}

fn config(redis: &Redis, name: &str, value: &str) {
    execute(redis, cmd("CONFIG").arg("SET").arg(name).arg(value));
}

/// Requirements for every fault that keeps the server from deciding.
fn judge(mut row: ReportRow, samples: &Samples, times: Times) -> ReportRow {
    let during = samples.between(times.fault, times.healed);
    row.no_errors(samples);
    let degraded = during.degraded();
    row.must("calls decided by policy meanwhile", format!("{degraded} of {}", during.len()), degraded > 0);
    row.note(format!("p99 {} during", millis(during.p99())));
    row
}

pub(super) fn falls_silent(profile: &Profile) -> ReportRow {
    let redis = Redis::start();
    let harness = Harness::start(&redis.url(), profile, &names());
    let times = harness.during(profile, || redis.signal("STOP"), || redis.signal("CONT"));
    let samples = harness.end();
    let fault = format!("Redis stalls (SIGSTOP) for {}", millis(profile.fault));
    let mut row = judge(ReportRow::new(fault, profile), &samples, times);
    let during = samples.between(times.fault, times.healed);
    let limit = Duration::from_millis(15);
    row.timed("p99.9 <= 15 ms during", millis(during.p999()), during.p999() <= limit);
    let quick = samples.quick_after(times.fault, at_once(profile));
    let measured =
        quick.map_or("never".to_owned(), |after| format!("answers at once after {}", millis(after)));
    row.timed(
        "breaker open < 200 ms",
        measured,
        quick.is_some_and(|after| after < Duration::from_millis(200)),
    );
    row.normal_within(&samples, times, Duration::from_secs(1), "SIGCONT");
    row
}

pub(super) fn dies_and_comes_back(profile: &Profile) -> ReportRow {
    let mut redis = Redis::start();
    let harness = Harness::start(&redis.url(), profile, &names());
    harness.calm(profile, profile.before);
    let fault = harness.load.now();
    redis.restart_after(profile.fault);
    let times = harness.healed(profile, fault);
    let samples = harness.end();
    let text = format!("Redis is killed (SIGKILL) and restarted after {}", millis(profile.fault));
    let mut row = judge(ReportRow::new(text, profile), &samples, times);
    row.normal_within(&samples, times, Duration::from_secs(1), "it answers");
    row
}

/// A server without memory to write, until it has some again.
pub(super) fn is_full(profile: &Profile) -> ReportRow {
    let redis = Redis::start_with(&["--maxmemory-policy", "noeviction"]);
    let harness = Harness::start(&redis.url(), profile, &names());
    let times =
        harness.during(profile, || config(&redis, "maxmemory", "1"), || config(&redis, "maxmemory", "0"));
    let samples = harness.end();
    let mut row = judge(ReportRow::new("Redis is full (maxmemory, noeviction)", profile), &samples, times);
    row.normal_within(&samples, times, Duration::from_secs(1), "there is room");
    row
}

/// A server that is made a replica, and a master again.
pub(super) fn takes_no_writes(profile: &Profile) -> ReportRow {
    let redis = Redis::start();
    let harness = Harness::start(&redis.url(), profile, &names());
    let times = harness.during(
        profile,
        || execute(&redis, cmd("REPLICAOF").arg("127.0.0.1").arg(1)),
        || execute(&redis, cmd("REPLICAOF").arg("NO").arg("ONE")),
    );
    let samples = harness.end();
    let mut row = judge(ReportRow::new("Redis becomes a replica (READONLY)", profile), &samples, times);
    row.normal_within(&samples, times, Duration::from_secs(1), "it is a master again");
    row
}

/// A server that executes no command, but is alive.
pub(super) fn is_paused(profile: &Profile) -> ReportRow {
    let redis = Redis::start();
    let harness = Harness::start(&redis.url(), profile, &names());
    let pause = i64::try_from(profile.fault.as_millis()).expect("not that long");
    let times = harness.during(profile, || execute(&redis, cmd("CLIENT").arg("PAUSE").arg(pause)), || ());
    let samples = harness.end();
    let mut row = judge(ReportRow::new("CLIENT PAUSE", profile), &samples, times);
    row.normal_within(&samples, times, Duration::from_secs(1), "the pause");
    row
}

/// A server that one command keeps busy, as `DEBUG SLEEP` does, which not every server obeys.
pub(super) fn is_busy(profile: &Profile) -> ReportRow {
    let redis = Redis::start();
    let harness = Harness::start(&redis.url(), profile, &names());
    let script = "local function now() local t = redis.call('TIME'); return t[1] * 1000 + t[2] / 1000 end
        local till = now() + ARGV[1]; while now() < till do end; return 1";
    harness.calm(profile, profile.before);
    let fault = harness.load.now();
    // A longer script makes the server reply that it is busy.
    let time = profile.fault.min(Duration::from_millis(4_500));
    let millis = i64::try_from(time.as_millis()).expect("not that long");
    execute(&redis, cmd("EVAL").arg(script).arg(0).arg(millis));
    let times = harness.healed(profile, fault);
    let samples = harness.end();
    let mut row = judge(ReportRow::new("one command keeps Redis busy", profile), &samples, times);
    row.normal_within(&samples, times, Duration::from_secs(1), "the command");
    row
}

/// The script is forgotten again and again, which is no fault that a caller should notice.
pub(super) fn forgets_the_script(profile: &Profile) -> ReportRow {
    let redis = Redis::start();
    let harness = Harness::start(&redis.url(), profile, &names());
    harness.calm(profile, profile.before);
    let (fault, begun) = (harness.load.now(), Instant::now());
    let mut flushes = 0;
    while begun.elapsed() < profile.fault {
        execute(&redis, cmd("SCRIPT").arg("FLUSH"));
        flushes += 1;
        thread::sleep(Duration::from_millis(100));
    }
    let reply: String = cmd("INFO").arg("errorstats").query(&mut redis.connect()).expect("a reply");
    let times = harness.healed(profile, fault);
    let samples = harness.end();
    let mut row = ReportRow::new("SCRIPT FLUSH every 100 ms", profile);
    row.no_errors(&samples);
    let during = samples.between(times.fault, times.healed);
    row.timed(
        "calls by policy 0",
        format!("{} of {}", during.degraded(), during.len()),
        during.degraded() == 0,
    );
    row.must("NOSCRIPT seen", format!("{flushes} flushes"), reply.contains("errorstat_NOSCRIPT"));
    row.note(format!("p99 {} during", millis(during.p99())));
    row
}

#[test]
fn a_silent_server_causes_no_error() {
    falls_silent(&Profile::SHORT).judge();
}

#[test]
fn a_killed_server_causes_no_error_and_is_used_after_its_restart() {
    dies_and_comes_back(&Profile::SHORT).judge();
}

#[test]
fn a_full_server_causes_no_error() {
    is_full(&Profile::SHORT).judge();
}

#[test]
fn a_read_only_server_causes_no_error() {
    takes_no_writes(&Profile::SHORT).judge();
}

#[test]
fn a_paused_server_causes_no_error() {
    is_paused(&Profile::SHORT).judge();
}

#[test]
fn a_busy_server_causes_no_error() {
    is_busy(&Profile::SHORT).judge();
}

#[test]
fn repeatedly_flushed_scripts_cause_no_error() {
    forgets_the_script(&Profile::SHORT).judge();
}

/// The fault of the network, for its duration.
fn disturb(fault: &str, profile: &Profile, disturb: impl FnOnce(&Proxy)) -> ReportRow {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let harness = Harness::start(&format!("redis://127.0.0.1:{}", proxy.port()), profile, &names());
    let times = harness.during(profile, || disturb(&proxy), || proxy.set_both(Way::Open));
    let samples = harness.end();
    let during = samples.between(times.fault, times.healed);
    let mut row = ReportRow::new(fault, profile);
    row.no_errors(&samples);
    let degraded = during.degraded();
    row.must("calls decided by policy meanwhile", format!("{degraded} of {}", during.len()), degraded > 0);
    row.timed("p99.9 <= 15 ms during", millis(during.p999()), during.p999() <= Duration::from_millis(15));
    row.normal_within(&samples, times, Duration::from_secs(1), "the fault");
    row
}

pub(super) fn is_black(profile: &Profile) -> ReportRow {
    disturb("the network to Redis drops everything", profile, |proxy| proxy.set_both(Way::Silent))
}

pub(super) fn is_slow(profile: &Profile) -> ReportRow {
    let delay = Way::Slow(2 * profile.timeout);
    disturb("the network to Redis delays by twice the store timeout", profile, |proxy| {
        proxy.set(Direction::ToClient, delay);
    })
}

/// New connections come up, and are cut in the middle of what the server says next.
pub(super) fn cuts_answers(profile: &Profile) -> ReportRow {
    disturb("connections to Redis are cut in the middle of replies", profile, |proxy| {
        proxy.set(Direction::ToClient, Way::CutAfter(7));
    })
}

/// The server's half is closed, again and again.
pub(super) fn is_half_closed(profile: &Profile) -> ReportRow {
    disturb("Redis closes its half of the connections every 20 ms", profile, |proxy| {
        for _ in 0..20 {
            proxy.half_close();
            thread::sleep(Duration::from_millis(20));
        }
    })
}

#[test]
fn a_network_that_drops_everything_causes_no_error() {
    is_black(&Profile::SHORT).judge();
}

#[test]
fn a_slow_network_causes_no_error() {
    is_slow(&Profile::SHORT).judge();
}

#[test]
fn truncated_replies_cause_no_error() {
    cuts_answers(&Profile::SHORT).judge();
}

#[test]
fn half_closed_connections_cause_no_error() {
    is_half_closed(&Profile::SHORT).judge();
}
