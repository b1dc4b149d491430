//! Tells how full the memory store is.

use std::{convert::Infallible, time::Duration};

use tokio::time;

use crate::{metrics, store::MemoryStore};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// Keeps the metrics of the store up to date, and logs when it begins to drop live counters; never ends.
pub(super) async fn report(store: MemoryStore) -> Infallible {
    let mut looks = time::interval(EVERY);
    let mut was_full = false;
    loop {
        looks.tick().await;
        let occupancy = store.occupancy();
        metrics::memory_store(occupancy.counters, occupancy.evicted);
        if occupancy.evicted > 0 && !was_full {
            was_full = true;
            tracing::warn!(
                counters = occupancy.counters,
                "the memory store is full: counters are dropped to make room; raise --max-counters"
            );
        }
    }
}
