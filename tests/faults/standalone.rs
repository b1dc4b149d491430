//! Faults of a single Redis, and of the network to it.

use redis::Cmd;

use super::*;

fn execute(redis: &Redis, command: &Cmd) {
    command.exec(&mut redis.connect_as("default", "")).expect("executed");
}

fn config(redis: &Redis, name: &str, value: &str) {
    execute(redis, cmd("CONFIG").arg("SET").arg(name).arg(value));
}

/// Has a fault keep the server at `url` from deciding, until `inject` returns. `healing` is what heals it.
fn degraded(
    fault: impl Display,
    healing: &str,
    profile: &Profile,
    url: &str,
    inject: impl FnOnce(),
) -> Findings {
    let mut found = Findings::of(fault, profile, url, &names(), inject);
    let during = found.during();
    found.row.some_by_policy("calls decided by policy meanwhile", &during);
    found.normal_within(Duration::from_secs(1), healing);
    found
}

impl Findings {
    fn with_p99(mut self) -> ReportRow {
        self.row.note(format!("p99 {} during", millis(self.during().p99())));
        self.row
    }

    fn prompt(mut self) -> Self {
        let p999 = self.during().p999();
        self.row.timed("p99.9 <= 15 ms during", millis(p999), p999 <= Duration::from_millis(15));
        self
    }
}

pub(super) fn falls_silent(profile: &Profile) -> ReportRow {
    let redis = Redis::start();
    let fault = format!("Redis stalls (SIGSTOP) for {}", millis(profile.fault));
    let mut found = degraded(fault, "SIGCONT", profile, &redis.url(), || {
        redis.signal("STOP");
        thread::sleep(profile.fault);
        redis.signal("CONT");
    })
    .prompt();
    // Answers that come at once don't wait for a server.
    let quick = found.samples.quick_after(found.times.fault, profile.normal_p99);
    let measured =
        quick.map_or("never".to_owned(), |after| format!("answers at once after {}", millis(after)));
    let is_quick = quick.is_some_and(|after| after < Duration::from_millis(200));
    found.row.timed("breaker open < 200 ms", measured, is_quick);
    found.with_p99()
}

pub(super) fn dies_and_comes_back(profile: &Profile) -> ReportRow {
    let mut redis = Redis::start();
    let fault = format!("Redis is killed (SIGKILL) and restarted after {}", millis(profile.fault));
    let url = redis.url();
    degraded(fault, "it answers", profile, &url, || redis.restart_after(profile.fault)).with_p99()
}

/// A server without memory to write, until it has some again.
pub(super) fn is_full(profile: &Profile) -> ReportRow {
    let redis = Redis::start_with(&["--maxmemory-policy", "noeviction"]);
    degraded("Redis is full (maxmemory, noeviction)", "there is room", profile, &redis.url(), || {
        config(&redis, "maxmemory", "1");
        thread::sleep(profile.fault);
        config(&redis, "maxmemory", "0");
    })
    .with_p99()
}

/// A server that is made a replica, and a master again.
pub(super) fn takes_no_writes(profile: &Profile) -> ReportRow {
    let redis = Redis::start();
    degraded("Redis becomes a replica (READONLY)", "it is a master again", profile, &redis.url(), || {
        execute(&redis, cmd("REPLICAOF").arg("127.0.0.1").arg(1));
        thread::sleep(profile.fault);
        execute(&redis, cmd("REPLICAOF").arg("NO").arg("ONE"));
    })
    .with_p99()
}

/// A server that executes no command, but is alive.
pub(super) fn is_paused(profile: &Profile) -> ReportRow {
    let redis = Redis::start();
    let pause = i64::try_from(profile.fault.as_millis()).expect("not that long");
    degraded("CLIENT PAUSE", "the pause", profile, &redis.url(), || {
        execute(&redis, cmd("CLIENT").arg("PAUSE").arg(pause));
        thread::sleep(profile.fault);
    })
    .with_p99()
}

/// A server that one command keeps busy, as `DEBUG SLEEP` does, which not every server obeys.
pub(super) fn is_busy(profile: &Profile) -> ReportRow {
    let redis = Redis::start();
    let script = "local function now() local t = redis.call('TIME'); return t[1] * 1000 + t[2] / 1000 end
        local till = now() + ARGV[1]; while now() < till do end; return 1";
    // A longer script makes the server reply that it is busy.
    let time = profile.fault.min(Duration::from_millis(4_500));
    let millis = i64::try_from(time.as_millis()).expect("not that long");
    degraded("one command keeps Redis busy", "the command", profile, &redis.url(), || {
        execute(&redis, cmd("EVAL").arg(script).arg(0).arg(millis));
    })
    .with_p99()
}

/// The script is forgotten again and again, which is no fault that a caller should notice.
pub(super) fn forgets_the_script(profile: &Profile) -> ReportRow {
    let redis = Redis::start();
    let (mut flushes, mut reply) = (0, String::new());
    let mut found = Findings::of("SCRIPT FLUSH every 100 ms", profile, &redis.url(), &names(), || {
        let begun = Instant::now();
        while begun.elapsed() < profile.fault {
            execute(&redis, cmd("SCRIPT").arg("FLUSH"));
            flushes += 1;
            thread::sleep(Duration::from_millis(100));
        }
        reply = cmd("INFO").arg("errorstats").query(&mut redis.connect()).expect("a reply");
    });
    let during = found.during();
    let measured = format!("{} of {}", during.degraded(), during.len());
    found.row.timed("calls by policy 0", measured, during.degraded() == 0);
    found.row.must("NOSCRIPT seen", format!("{flushes} flushes"), reply.contains("errorstat_NOSCRIPT"));
    found.with_p99()
}

/// The fault of the network, for its duration.
fn disturb(fault: &str, profile: &Profile, disturb: impl FnOnce(&Proxy)) -> ReportRow {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let found = degraded(fault, "the fault", profile, &url, || {
        disturb(&proxy);
        thread::sleep(profile.fault);
        proxy.set_both(Way::Open);
    });
    found.prompt().row
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
fn faults_of_a_server_cause_no_error() {
    for scenario in
        [falls_silent, dies_and_comes_back, is_full, takes_no_writes, is_paused, is_busy, forgets_the_script]
    {
        scenario(&Profile::SHORT).judge();
    }
}

#[test]
fn faults_of_the_network_to_a_server_cause_no_error() {
    for scenario in [is_black, is_slow, cuts_answers, is_half_closed] {
        scenario(&Profile::SHORT).judge();
    }
}
