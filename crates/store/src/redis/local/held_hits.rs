//! Hits that the workers of this process hold of a counter, to be shown to operators.

use std::sync::Arc;

use tokio::time::Instant;

use super::LocalCache;
use crate::{redis::live::LiveList, request::Requests};

/// The caches of all workers and servers.
pub(in crate::redis) static CACHES: LiveList<LocalCache> = LiveList::new();

/// Hits charged ahead for the counters of `requests` and not used yet, in this process. Reads each worker's cache in turn.
pub fn held_hits(requests: &Requests) -> u64 {
    let now = Instant::now();
    let held = |cache: &Arc<LocalCache>| requests.iter().map(|request| cache.held_hits(request, now)).sum();
    CACHES.all().iter().map(held).fold(0, u64::saturating_add)
}
