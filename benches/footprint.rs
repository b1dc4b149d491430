//! Memory of counters in the memory store: `cargo run --release --example footprint [SECONDS]`.
//!
//! Measures a million counters with short and with long names, as the process's resident memory under tollgate's
//! allocator, overhead included; fails if one takes more than 150 bytes. Then creates and expires a million counters at a
//! time for some seconds, each once, and fails unless memory stays flat.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::float_arithmetic,
    clippy::print_stdout,
    clippy::unwrap_used
)]

use std::{
    env, fs, thread,
    time::{Duration, Instant},
};

use tollgate::{
    RecordId, SyncMode,
    algorithm::{Algorithm, Charging, Parameters, Policy},
    clock::Clock,
    descriptor::{Entry, Hits},
    quota::{Quota, Window},
    store::{
        MemoryStore,
        key::CellKey,
        request::{Check, TagRequest, Veto},
    },
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const COUNTERS: u64 = 1_000_000;

/// Maximum bytes per counter.
const MAX_BYTES_PER_COUNTER: f64 = 150.0;

/// Lifetime of a million counters.
const WINDOW_SECONDS: u32 = 10;

/// Counts a hit of a client, whose id has some ten bytes, or `extra_bytes` more.
fn hit(store: &MemoryStore, client: u64, extra_bytes: usize, window: u32) {
    let id = format!("{:010x}{:x<extra_bytes$}", client.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24, "");
    let key = CellKey::open("edge", [Entry { key: "api_key", value: &id }].into_iter());
    let quota = Quota { limit: 100, window: Window::from_seconds(window).unwrap() };
    let policy = Policy::new(Algorithm::FixedWindow, quota, &Parameters::default()).unwrap();
    let record = RecordId::alone(Algorithm::FixedWindow);
    let check = Check {
        descriptor: 0,
        record,
        policy,
        hits: Hits::ONE,
        veto: Veto::Alone,
        sync: SyncMode::Strict,
        ban: None,
        share: None,
    };
    store.decide(&TagRequest::new(Charging::Independent, key, check));
}

/// Resident bytes of this process.
fn resident_bytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0
}

/// Returns the store, so that it stays allocated and the next one cannot reuse its memory.
fn measure(counters: u64, extra_bytes: usize) -> MemoryStore {
    let before = resident_bytes();
    let store = MemoryStore::new(usize::MAX, Clock::System);
    (0..counters).for_each(|client| hit(&store, client, extra_bytes, 3_600 * 24 * 365));
    let count = store.occupancy().counters;
    let bytes = (resident_bytes() - before) / count as f64;
    println!("{count:>9} counters of clients with {:>2} bytes: {bytes:.1} bytes each", 10 + extra_bytes);
    assert!(counters < COUNTERS || bytes <= MAX_BYTES_PER_COUNTER, "more than {MAX_BYTES_PER_COUNTER} bytes");
    store
}

fn churn(duration: Duration) {
    let store = MemoryStore::new(4 * COUNTERS as usize, Clock::System);
    let (started, mut client, mut settled) = (Instant::now(), 0, None);
    let step = Duration::from_millis(10);
    println!("seconds, counters, resident MB");
    for tick in 1.. {
        (0..COUNTERS / u64::from(WINDOW_SECONDS) / 100).for_each(|_| {
            hit(&store, client, 0, WINDOW_SECONDS);
            client += 1;
        });
        let elapsed = started.elapsed();
        if tick % 500 == 0 {
            let (seconds, resident) = (elapsed.as_secs(), resident_bytes());
            println!("{seconds:>7} {:>9} {:>8.1}", store.occupancy().counters, resident / 1e6);
            // All windows are full by then.
            if seconds >= 3 * u64::from(WINDOW_SECONDS) {
                let settled = *settled.get_or_insert(resident);
                assert!(resident <= settled * 1.1, "memory grows");
            }
        }
        if elapsed >= duration {
            return;
        }
        thread::sleep((step * tick).saturating_sub(elapsed));
    }
}

fn main() {
    // With the first counters, the allocator reserves memory of its own.
    let all = [(1_000, 0), (COUNTERS, 0), (COUNTERS, 26), (COUNTERS * 6 / 5, 26)];
    let _stores = all.map(|(counters, extra_bytes)| measure(counters, extra_bytes));
    churn(Duration::from_secs(env::args().nth(1).map_or(60, |seconds| seconds.parse().unwrap())));
}
