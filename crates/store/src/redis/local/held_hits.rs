//! Hits that the workers of this process hold of a counter, to be shown to operators.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::LocalCache;
use crate::request::Requests;

/// The caches of all workers and servers.
static CACHES: Mutex<Vec<Weak<LocalCache>>> = Mutex::new(Vec::new());

/// Hits charged ahead for the counters of `requests` and not used yet, in this process. Asks each worker's cache in turn.
pub fn held_hits(requests: &Requests) -> u64 {
    let caches: Vec<Arc<LocalCache>> = CACHES.lock().iter().filter_map(Weak::upgrade).collect();
    let now = Instant::now();
    let held = |cache: &Arc<LocalCache>| requests.iter().map(|request| cache.held_hits(request, now)).sum();
    caches.iter().map(held).fold(0, u64::saturating_add)
}

/// Includes a cache in the sums until it is dropped.
pub(in crate::redis) fn add_cache(cache: Weak<LocalCache>) {
    let mut caches = CACHES.lock();
    caches.retain(|cache| cache.strong_count() > 0);
    caches.push(cache);
}
