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
const HEAVY_PERCENT: u32 = 5;

/// Hits that a thread records between two reads of the clock.
const BATCH: usize = 1_000;

const MIN_BATCH_DURATION: Duration = Duration::from_millis(2);

/// Exact counts of recorded and denied hits, by key.
struct ExactCounts {
    recorded_hits: Vec<AtomicU32>,
    denied: Vec<AtomicU32>,
    /// Total duration of the calls.
    nanos: AtomicU64,
}

impl ExactCounts {
    fn new() -> Self {
        let zeros = || (0..KEYS).map(|_| AtomicU32::new(0)).collect();
        Self { recorded_hits: zeros(), denied: zeros(), nanos: AtomicU64::new(0) }
    }

    fn top_five(counts: &[AtomicU32]) -> Vec<(u32, usize)> {
        let mut ranked: Vec<_> =
            counts.iter().enumerate().map(|(key, count)| (count.load(Ordering::Relaxed), key)).collect();
        ranked.select_nth_unstable_by(5, |a, b| b.cmp(a));
        ranked.truncate(5);
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        ranked
    }
}

/// Name of a key; the names of neighbours have no common prefix.
fn key_name(key: usize) -> String {
    format!("{:016x}", (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Records one part in `THREADS` of the keys once each, mixed with drawn keys, for `duration`.
fn record(
    domain: &str,
    exact: &ExactCounts,
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
            texts.push((key, key_name(key), key.is_multiple_of(3) && random.bool()));
        }
        let calls_started = Instant::now();
        for (_, value, is_denied) in &texts {
            talkers::record(domain, &[Entry { key: "api_key", value }], 1, *is_denied);
        }
        nanos += calls_started.elapsed().as_nanos() as u64;
        for (key, _, is_denied) in &texts {
            exact.recorded_hits[*key].fetch_add(1, Ordering::Relaxed);
            exact.denied[*key].fetch_add(u32::from(*is_denied), Ordering::Relaxed);
        }
        thread::sleep(MIN_BATCH_DURATION.saturating_sub(batch.elapsed()));
    }
    exact.nanos.fetch_add(nanos, Ordering::Relaxed);
}

/// Resident bytes of this process.
fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0
}

/// Checks that the ten reported keys contain the five that are truly the heaviest.
fn check_ranking(kind: &str, reported: &[Talker], exact: &[AtomicU32]) {
    println!("  {kind}: true hits, reported hits, and their error");
    let top_five = ExactCounts::top_five(exact);
    for (count, key) in &top_five {
        let key = format!("api_key={}", key_name(*key));
        let found = reported.iter().position(|talker| talker.key == key);
        let rank = found.unwrap_or_else(|| panic!("{key} is not among the ten: {reported:?}"));
        let Talker { hits, error, .. } = &reported[rank];
        println!("    {key} {count:>9} {hits:>9} {error:>7}, reported as number {}", rank + 1);
    }
}

fn compare(domain: &str, duration: Duration, draw: impl Fn(&mut Rng) -> Option<usize> + Sync) {
    let exact = ExactCounts::new();
    let (before, started) = (resident(), Instant::now());
    thread::scope(|scope| {
        for part in 0..THREADS {
            let (exact, draw) = (&exact, &draw);
            scope.spawn(move || record(domain, exact, part, duration, draw));
        }
    });
    let took = started.elapsed();
    // Queued samples are collected every 100 ms.
    thread::sleep(Duration::from_millis(300));
    let hits: u64 = exact.recorded_hits.iter().map(|count| u64::from(count.load(Ordering::Relaxed))).sum();
    let distinct = exact.recorded_hits.iter().filter(|count| count.load(Ordering::Relaxed) > 0).count();
    println!("{domain}: {hits} hits of {distinct} keys by {THREADS} threads in {took:.0?}");
    assert!(distinct == KEYS && took < Duration::from_secs(50), "not all keys within a minute");
    let growth = resident() - before;
    let report = Instant::now();
    let top = talkers::report(Some(domain), 10).remove(0);
    println!("  report took {:.1?}", report.elapsed());
    check_ranking("heaviest", &top.heaviest, &exact.recorded_hits);
    check_ranking("denied", &top.denied, &exact.denied);
    println!(
        "  a call took {:.0} ns (including the clock and waits for a processor); sketches have {:.2} MB, resident {:+.1} MB",
        exact.nanos.load(Ordering::Relaxed) as f64 / hits as f64,
        talkers::bytes() as f64 / 1e6,
        growth / 1e6,
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
    let (mut peak_bytes, mut logged_at) = (0, Instant::now());
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
        peak_bytes = peak_bytes.max(talkers::bytes());
        if logged_at.elapsed() > Duration::from_secs(10) {
            logged_at = Instant::now();
            println!(
                "  sketches have {:.2} MB, resident {:+.1} MB",
                talkers::bytes() as f64 / 1e6,
                (resident() - before) / 1e6
            );
        }
        thread::sleep(MIN_BATCH_DURATION);
    }
    println!("  at peak_bytes {:.2} MB", peak_bytes as f64 / 1e6);
    assert!(peak_bytes < 28 << 20, "more than 28 MiB");
}

fn main() {
    let seconds = env::args().nth(1).map_or(30, |seconds| seconds.parse().unwrap());
    let duration = Duration::from_secs(seconds);
    talkers::start(true).unwrap();
    compare("five heavy keys", duration, |random| {
        (random.u32(..100) < HEAVY_PERCENT).then(|| 3 * 1_000 * random.usize(..5))
    });
    compare("zipf", duration, |random| random.bool().then(|| zipf(random)));
    println!("64 domains of keys with 256 bytes");
    fill(Duration::from_secs(70));
}
