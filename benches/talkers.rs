//! Top talkers against exact counts of ten million keys: `cargo run --release --example talkers [SECONDS]`.
//!
//! Several threads record hits as workers do, for some seconds (30 by default) at about two million hits per second: for
//! five heavy keys among ten million equal ones, and for ten million keys under Zipf's law, each of which occurs at least
//! once. Fails unless the ten reported keys contain the five that are truly the heaviest, also of the denied ones. Then
//! fills the sketches of 70 domains with keys of maximum length and measures their memory.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used
)]

use std::{
    env, fs,
    io::Write as _,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use tollgate::{
    descriptor::Entry,
    talkers::{self, Talker},
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KEYS: usize = 10_000_000;
const THREADS: usize = 4;

/// Percentage of hits for the five heavy keys.
const HEAVY: u32 = 5;

/// Hits that a thread records between two reads of the clock.
const BATCH: usize = 1_000;

/// Minimum duration of a batch.
const PACE: Duration = Duration::from_millis(2);

/// Exact counts of recorded and denied hits, by key.
struct Truth {
    asked: Vec<AtomicU32>,
    denied: Vec<AtomicU32>,
    /// Total duration of the calls.
    nanos: AtomicU64,
}

impl Truth {
    fn new() -> Self {
        let zeros = || (0..KEYS).map(|_| AtomicU32::new(0)).collect();
        Self { asked: zeros(), denied: zeros(), nanos: AtomicU64::new(0) }
    }

    fn five(counts: &[AtomicU32]) -> Vec<(u32, usize)> {
        let mut ranked: Vec<_> =
            counts.iter().enumerate().map(|(key, count)| (count.load(Ordering::Relaxed), key)).collect();
        ranked.select_nth_unstable_by(5, |a, b| b.cmp(a));
        ranked.truncate(5);
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        ranked
    }
}

/// Name of a key; the names of neighbours have no common prefix.
fn name(key: usize) -> String {
    format!("{:016x}", (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Records one part in `THREADS` of the keys once each, mixed with drawn keys, for `duration`.
fn record(
    domain: &str,
    truth: &Truth,
    part: usize,
    duration: Duration,
    draw: &impl Fn(&mut Rng) -> Option<usize>,
) {
    let (mut random, started) = (Rng::with_seed(part as u64), Instant::now());
    let mut own = (part..KEYS).step_by(THREADS).cycle();
    let own_count = KEYS.div_ceil(THREADS);
    let (mut recorded, mut nanos) = (0, 0);
    let mut texts: Vec<(usize, String, bool)> = Vec::with_capacity(BATCH);
    while recorded < own_count || started.elapsed() < duration {
        let batch = Instant::now();
        texts.clear();
        for _ in 0..BATCH {
            let key = draw(&mut random).unwrap_or_else(|| {
                recorded += 1;
                own.next().unwrap()
            });
            // Half of the hits of each third key.
            texts.push((key, name(key), key.is_multiple_of(3) && random.bool()));
        }
        let asked = Instant::now();
        for (_, value, is_denied) in &texts {
            talkers::record(domain, &[Entry { key: "api_key", value }], 1, *is_denied);
        }
        nanos += asked.elapsed().as_nanos() as u64;
        for (key, _, is_denied) in &texts {
            truth.asked[*key].fetch_add(1, Ordering::Relaxed);
            truth.denied[*key].fetch_add(u32::from(*is_denied), Ordering::Relaxed);
        }
        thread::sleep(PACE.saturating_sub(batch.elapsed()));
    }
    truth.nanos.fetch_add(nanos, Ordering::Relaxed);
}

/// Resident bytes of this process.
fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0
}

/// Checks that the ten reported keys contain the five that are truly the heaviest.
fn judge(kind: &str, reported: &[Talker], truth: &[AtomicU32]) {
    println!("  {kind}: true hits, reported hits, and their error");
    let five = Truth::five(truth);
    for (count, key) in &five {
        let key = format!("api_key={}", name(*key));
        let found = reported.iter().position(|talker| talker.key == key);
        let rank = found.unwrap_or_else(|| panic!("{key} is not among the ten: {reported:?}"));
        let Talker { hits, error, .. } = &reported[rank];
        println!("    {key} {count:>9} {hits:>9} {error:>7}, reported as number {}", rank + 1);
    }
}

fn compare(domain: &str, duration: Duration, draw: impl Fn(&mut Rng) -> Option<usize> + Sync) {
    let truth = Truth::new();
    let (before, started) = (resident(), Instant::now());
    thread::scope(|scope| {
        for part in 0..THREADS {
            let (truth, draw) = (&truth, &draw);
            scope.spawn(move || record(domain, truth, part, duration, draw));
        }
    });
    let took = started.elapsed();
    // Queued samples are collected every 100 ms.
    thread::sleep(Duration::from_millis(300));
    let hits: u64 = truth.asked.iter().map(|count| u64::from(count.load(Ordering::Relaxed))).sum();
    let distinct = truth.asked.iter().filter(|count| count.load(Ordering::Relaxed) > 0).count();
    println!("{domain}: {hits} hits of {distinct} keys by {THREADS} threads in {took:.0?}");
    assert!(distinct == KEYS && took < Duration::from_secs(50), "not all keys within a minute");
    let grown = resident() - before;
    let report = Instant::now();
    let top = talkers::report(Some(domain), 10).remove(0);
    println!("  report took {:.1?}", report.elapsed());
    judge("heaviest", &top.heaviest, &truth.asked);
    judge("denied", &top.denied, &truth.denied);
    println!(
        "  a call took {:.0} ns (including the clock and waits for a processor); sketches have {:.2} MB, resident {:+.1} MB",
        truth.nanos.load(Ordering::Relaxed) as f64 / hits as f64,
        talkers::bytes() as f64 / 1e6,
        grown / 1e6,
    );
}

/// The chance of rank k is proportional to about 1/k: exponent 1, by the inverse of the integral.
fn zipf(random: &mut Rng) -> usize {
    let drawn = ((KEYS as f64 + 1.0).ln() * random.f64()).exp();
    (drawn as usize).clamp(1, KEYS) - 1
}

/// Records unique keys of 256 bytes, in more domains than are tracked, for a minute.
fn fill(duration: Duration) {
    let before = resident();
    let (started, mut at) = (Instant::now(), 0_u64);
    let (mut most, mut logged_at) = (0, Instant::now());
    let mut value = String::new();
    while started.elapsed() < duration {
        for _ in 0..1_000 {
            value.clear();
            let mut bytes = std::mem::take(&mut value).into_bytes();
            write!(bytes, "{at:0>248}").unwrap();
            value = String::from_utf8(bytes).unwrap();
            talkers::record(
                &format!("domain-{}", at % 70),
                &[Entry { key: "api_key", value: &value }],
                1,
                true,
            );
            at += 1;
        }
        most = most.max(talkers::bytes());
        if logged_at.elapsed() > Duration::from_secs(10) {
            logged_at = Instant::now();
            println!(
                "  sketches have {:.2} MB, resident {:+.1} MB",
                talkers::bytes() as f64 / 1e6,
                (resident() - before) / 1e6
            );
        }
        thread::sleep(PACE);
    }
    println!("  at most {:.2} MB", most as f64 / 1e6);
    assert!(most < 28 << 20, "more than is promised");
}

fn main() {
    let seconds = env::args().nth(1).map_or(30, |seconds| seconds.parse().unwrap());
    let duration = Duration::from_secs(seconds);
    talkers::start(true).unwrap();
    compare("five heavy keys", duration, |random| {
        (random.u32(..100) < HEAVY).then(|| 3 * 1_000 * random.usize(..5))
    });
    compare("zipf", duration, |random| random.bool().then(|| zipf(random)));
    println!("64 domains of keys with 256 bytes");
    fill(Duration::from_secs(70));
}
