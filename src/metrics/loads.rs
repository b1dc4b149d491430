//! Attempts to load the rules.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::page::{Kind, Page};

static SUCCEEDED: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);

/// How the last one ended.
static LATEST: AtomicU8 = AtomicU8::new(NONE);

const NONE: u8 = u8::MAX;

/// Counts an attempt to load the rules.
pub fn config_load(loaded: bool) {
    let count = if loaded { &SUCCEEDED } else { &FAILED };
    count.fetch_add(1, Ordering::Relaxed);
    LATEST.store(u8::from(loaded), Ordering::Relaxed);
}

/// Attempts so far: those that succeeded, and those that failed.
pub(super) fn so_far() -> [u64; 2] {
    [&SUCCEEDED, &FAILED].map(|count| count.load(Ordering::Relaxed))
}

/// Adds them to a page, and how the last one ended.
pub(super) fn write(page: &mut Page) {
    let name = "tollgate_config_loads_total";
    page.begin(name, Kind::Counter, "Loads of the rules.");
    for (result, count) in ["success", "error"].into_iter().zip(so_far()) {
        page.sample(name, &[("result", result)], count);
    }
    // Where there is no version yet, none is bad.
    let latest = LATEST.load(Ordering::Relaxed);
    if latest != NONE {
        let name = "tollgate_config_last_load_successful";
        page.begin(name, Kind::Gauge, "Whether the last load of the rules was good.");
        page.sample(name, &[], latest);
    }
}
