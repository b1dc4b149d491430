//! How many instances share the limits.
//!
//! While the store works, each instance holds a place of a concurrency limit in it that no request can name: as many
//! places are held as there are instances. An instance that ends without a word is counted until its place's time to
//! live has passed.

use std::{
    collections::VecDeque,
    num::{NonZeroU32, NonZeroU64},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use smallvec::smallvec;
use tokio::time::{Instant, sleep};

use super::metrics;
use tollgate_core::{
    RecordId, SyncMode,
    algorithm::{Algorithm, Charging, Parameters, Policy},
    descriptor::Hits,
    lease::LeaseId,
    quota::{Quota, Unit, Window},
};
use tollgate_store::{
    RedisStore,
    key::CellKey,
    request::{Cell, Check, TagRequest},
};

/// How long an instance counts that ended without a word.
const TIME_TO_LIVE: Duration = Duration::from_secs(30);

/// Between two counts, by which a place is held for longer.
const EVERY: Duration = Duration::from_secs(5);

/// Between two attempts to count for the first time.
const AT_FIRST: Duration = Duration::from_millis(200);

/// The name of the cell; requests always have a domain.
const NO_DOMAIN: &str = "";

/// How many instances share the limits, as far as is known: clones know the same.
#[derive(Clone, Debug)]
pub struct Replicas(Arc<AtomicU32>);

impl Default for Replicas {
    fn default() -> Self {
        Self::new(NonZeroU32::MIN)
    }
}

impl Replicas {
    /// So many, as long as nobody counts.
    pub fn new(known: NonZeroU32) -> Self {
        Self(Arc::new(AtomicU32::new(known.get())))
    }

    /// How many there are, one at least.
    pub fn known(&self) -> NonZeroU32 {
        NonZeroU32::new(self.0.load(Ordering::Relaxed)).unwrap_or(NonZeroU32::MIN)
    }

    /// Counts instances in `store`, this one among them, until nobody is left who asks. What was counted last stays
    /// true while the store fails.
    pub async fn count(self, store: RedisStore) {
        let lease = LeaseId::random();
        let mut counts = Counts::default();
        while Arc::strong_count(&self.0) > 1 {
            let counted = store.decide(&presence(lease)).await.ok();
            if let Some((_, verdict)) = counted.as_ref().and_then(|verdicts| verdicts.last()) {
                let most = counts.add(Instant::now(), u32::try_from(verdict.used).unwrap_or(u32::MAX));
                self.0.store(most, Ordering::Relaxed);
                metrics::replicas(most);
            }
            sleep(if counts.is_empty() { AT_FIRST } else { EVERY }).await;
        }
    }
}

/// What was counted of late. The largest of it counts: a store that forgot everything knows the others only when they
/// have told it again.
#[derive(Debug, Default)]
struct Counts(VecDeque<(Instant, u32)>);

impl Counts {
    /// Adds a count; tells the largest of late.
    fn add(&mut self, now: Instant, count: u32) -> u32 {
        let is_late = |(at, _): &(Instant, u32)| now.saturating_duration_since(*at) > EVERY.saturating_mul(2);
        // After an outage the others have to be counted anew, which takes them a while.
        if self.0.back().is_some_and(is_late) {
            let most = self.0.iter().map(|(_, count)| *count).max().unwrap_or(1);
            self.0.clear();
            self.0.push_back((now, most));
        }
        self.0.retain(|(at, _)| now.saturating_duration_since(*at) < TIME_TO_LIVE);
        self.0.push_back((now, count.max(1)));
        self.0.iter().map(|(_, count)| *count).max().unwrap_or(1)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Holds the place of an instance for another time to live.
fn presence(lease: LeaseId) -> TagRequest {
    let quota = Quota { limit: u32::MAX, window: Window::of(Unit::Second) };
    let parameters = Parameters { lease_ttl: TIME_TO_LIVE, ..Parameters::default() };
    let policy = Policy::nearest(Algorithm::Concurrency, quota, &parameters);
    let record = RecordId::alone(Algorithm::Concurrency);
    let ask = |hits| Check { descriptor: 0, record, policy, hits, vetoes: false, sync: SyncMode::Strict };
    let hits = [Hits::Release(lease), Hits::Acquire { amount: NonZeroU64::MIN, lease }];
    let cell = Cell { key: CellKey::global(NO_DOMAIN, record), checks: hits.map(ask).into_iter().collect() };
    TagRequest { cells: smallvec![cell], charging: Charging::Independent }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_count_of_late_is_believed() {
        let (mut counts, now) = (Counts::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(counts.add(at(0), 3), 3);
        assert_eq!(counts.add(at(5), 1), 3, "the store may have forgotten the others");
        (2..6).for_each(|round| assert_eq!(counts.add(at(5 * round), 2), 3));
        assert_eq!(counts.add(at(30), 2), 2);
        assert_eq!(counts.add(at(100), 1), 2, "nobody could be counted meanwhile");
        (21..26).for_each(|round| assert_eq!(counts.add(at(5 * round), 1), 2));
        assert_eq!(counts.add(at(130), 0), 1);
    }
}
