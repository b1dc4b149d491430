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
        request::{Check, TagRequest},
    },
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const COUNTERS: u64 = 1_000_000;

/// Maximum bytes per counter.
const PROMISED: f64 = 150.0;

/// Length in seconds of the window in which a million counters live.
const WINDOW: u32 = 10;

/// Counts a hit of a client, whose id has some ten bytes, or `longer` ones.
fn hit(store: &MemoryStore, client: u64, longer: usize, window: u32) {
    let id = format!("{:010x}{:x<longer$}", client.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24, "");
    let key = CellKey::open("edge", [Entry { key: "api_key", value: &id }].into_iter());
    let quota = Quota { limit: 100, window: Window::from_seconds(window).unwrap() };
    let policy = Policy::new(Algorithm::FixedWindow, quota, &Parameters::default()).unwrap();
    let record = RecordId::alone(Algorithm::FixedWindow);
    let ask = Check { descriptor: 0, record, policy, hits: Hits::ONE, vetoes: true, sync: SyncMode::Strict };
    store.decide(&TagRequest::new(Charging::Independent, key, ask));
}

/// Resident bytes of this process.
fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0
}

/// Returns the store, so that it stays allocated and the next one cannot reuse its memory.
fn weigh(counters: u64, longer: usize) -> MemoryStore {
    let before = resident();
    let store = MemoryStore::new(usize::MAX, Clock::System);
    (0..counters).for_each(|client| hit(&store, client, longer, 3_600 * 24 * 365));
    let held = store.occupancy().counters;
    let bytes = (resident() - before) / held as f64;
    println!("{held:>9} counters of clients with {:>2} bytes: {bytes:.1} bytes each", 10 + longer);
    assert!(counters < COUNTERS || bytes <= PROMISED, "more than {PROMISED} bytes");
    store
}

fn rotate(duration: Duration) {
    let store = MemoryStore::new(4 * COUNTERS as usize, Clock::System);
    let (started, mut client, mut settled) = (Instant::now(), 0, None);
    let step = Duration::from_millis(10);
    println!("seconds, counters, resident MB");
    for tick in 1.. {
        (0..COUNTERS / u64::from(WINDOW) / 100).for_each(|_| {
            hit(&store, client, 0, WINDOW);
            client += 1;
        });
        let elapsed = started.elapsed();
        if tick % 500 == 0 {
            let (seconds, resident) = (elapsed.as_secs(), resident());
            println!("{seconds:>7} {:>9} {:>8.1}", store.occupancy().counters, resident / 1e6);
            // All windows are full by then.
            if seconds >= 3 * u64::from(WINDOW) {
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
    // The allocator takes its own share of memory with the first counters.
    let all = [(1_000, 0), (COUNTERS, 0), (COUNTERS, 26), (COUNTERS * 6 / 5, 26)];
    let _kept = all.map(|(counters, longer)| weigh(counters, longer));
    rotate(Duration::from_secs(env::args().nth(1).map_or(60, |seconds| seconds.parse().unwrap())));
}
