//! Metrics of the memory store.

use std::{convert::Infallible, time::Duration};

use tokio::time;
use tollgate_store::{MemoryStore, metrics};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Updates the metrics of the memory store, and logs the first eviction of live counters. Never returns.
pub(super) async fn report(store: MemoryStore) -> Infallible {
    let mut ticks = time::interval(POLL_INTERVAL);
    let mut was_full = false;
    loop {
        ticks.tick().await;
        let occupancy = store.occupancy();
        metrics::memory_store(occupancy.counters, occupancy.evicted);
        if occupancy.evicted > 0 && !was_full {
            was_full = true;
            tracing::warn!(
                counters = occupancy.counters,
                "memory store full; evicting counters (see --max-counters)"
            );
        }
    }
}
