//! Number of instances that share the limits.
//!
//! While the store works, each instance holds a permit of a concurrency limit that no request can name: the number of
//! held permits is the number of instances. An instance that ends without releasing its permit is counted until the
//! permit expires.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{collections::VecDeque, time::Duration};

use smallvec::smallvec;
use tokio::time::{Instant, sleep};
use tollgate_core::algorithm::{Algorithm, Charging, Policy};
use tollgate_core::{RecordId, descriptor::Hits, lease::LeaseId};
use tollgate_store::request::{Cell, Check, TagRequest};
use tollgate_store::{RedisStore, key::CellKey};

use super::metrics;

/// Time for which an instance counts after it last renewed its permit.
const PRESENCE_TTL: Duration = Duration::from_secs(30);

/// Time between two counts, each of which renews the permit.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// Time between two attempts until the first count.
const FIRST_COUNT_INTERVAL: Duration = Duration::from_millis(200);

/// Time between the next counts, of which there are ten: instances that start together count each other soon.
const EARLY_COUNT_INTERVAL: Duration = Duration::from_secs(1);
const EARLY_COUNTS: u32 = 10;

/// Domain of the cell; requests always have one.
const NO_DOMAIN: &str = "";

/// Last known number of instances that share the limits; clones share it.
#[derive(Clone, Debug)]
pub struct Replicas(Arc<AtomicU32>);

impl Default for Replicas {
    fn default() -> Self {
        Self::new(NonZeroU32::MIN)
    }
}

impl Replicas {
    /// Starts with a known number, until instances are counted.
    pub fn new(known: NonZeroU32) -> Self {
        Self(Arc::new(AtomicU32::new(known.get())))
    }

    /// The number of instances, at least 1.
    pub fn known(&self) -> NonZeroU32 {
        NonZeroU32::new(self.0.load(Ordering::Relaxed)).unwrap_or(NonZeroU32::MIN)
    }

    /// Counts instances in `store`, this one included, until all other clones are dropped. The last count remains while
    /// the store fails.
    pub async fn count(self, store: RedisStore) {
        let lease = LeaseId::random();
        let (mut counts, mut early_counts) = (RecentCounts::default(), 0_u32);
        while Arc::strong_count(&self.0) > 1 {
            let counted = store.decide_own(&presence(lease)).await.ok();
            if let Some((_, verdict)) = counted.as_ref().and_then(|verdicts| verdicts.last()) {
                let most = counts.add(Instant::now(), u32::try_from(verdict.used).unwrap_or(u32::MAX));
                self.0.store(most, Ordering::Relaxed);
                metrics::REPLICAS.set(most.into());
            }
            let pause = match early_counts {
                _ if counts.0.is_empty() => FIRST_COUNT_INTERVAL,
                0..EARLY_COUNTS => EARLY_COUNT_INTERVAL,
                _ => COUNT_INTERVAL,
            };
            early_counts = early_counts.saturating_add(u32::from(!counts.0.is_empty()));
            sleep(pause).await;
        }
    }
}

/// Recent counts, of which the largest is used: a store that lost its data counts the others only after they renewed
/// their permits.
#[derive(Debug, Default)]
struct RecentCounts(VecDeque<(Instant, u32)>);

impl RecentCounts {
    /// Adds a count; returns the largest recent one.
    fn add(&mut self, now: Instant, count: u32) -> u32 {
        let is_late =
            |(at, _): &(Instant, u32)| now.saturating_duration_since(*at) > COUNT_INTERVAL.saturating_mul(2);
        // After an outage the other instances must renew their permits first, which takes a while.
        if self.0.back().is_some_and(is_late) {
            let most = self.0.iter().map(|(_, count)| *count).max().unwrap_or(1);
            self.0.clear();
            self.0.push_back((now, most));
        }
        self.0.retain(|(at, _)| now.saturating_duration_since(*at) < PRESENCE_TTL);
        self.0.push_back((now, count.max(1)));
        self.0.iter().map(|(_, count)| *count).max().unwrap_or(1)
    }
}

/// Renews the permit of an instance.
fn presence(lease: LeaseId) -> TagRequest {
    let policy = Policy::of_holders(PRESENCE_TTL);
    let record = RecordId::alone(Algorithm::Concurrency);
    let check = |hits| Check::own(record, policy, hits);
    let hits = [Hits::Release(lease), Hits::Acquire { amount: NonZeroU64::MIN, lease }];
    let cell =
        Cell { key: CellKey::global(NO_DOMAIN, record), checks: hits.map(check).into_iter().collect() };
    TagRequest { cells: smallvec![cell], charging: Charging::Independent, is_of_rule: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_recent_count_is_used() {
        let (mut counts, now) = (RecentCounts::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(counts.add(at(0), 3), 3);
        assert_eq!(counts.add(at(5), 1), 3, "the store may have lost the others");
        (2..6).for_each(|round| assert_eq!(counts.add(at(5 * round), 2), 3));
        assert_eq!(counts.add(at(30), 2), 2);
        assert_eq!(counts.add(at(100), 1), 2, "none could be counted meanwhile");
        (21..26).for_each(|round| assert_eq!(counts.add(at(5 * round), 1), 2));
        assert_eq!(counts.add(at(130), 0), 1);
    }
}
