//! How many instances share the limits.
//!
//! While the store works, each instance holds a place of a concurrency limit in it that no request can name: as many
//! places are held as there are instances. An instance that ends without a word is counted until its place's time to
//! live has passed.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use smallvec::smallvec;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    algorithm::{Algorithm, Charging, Parameters, Policy},
    descriptor::Hits,
    lease::LeaseId,
    metrics,
    quota::{Quota, Unit, Window},
    rules::{RecordId, Sync},
    store::{
        RedisStore,
        call::{Ask, Call, Cell},
        key::CellKey,
    },
};

/// How long an instance counts that ended without a word.
const TIME_TO_LIVE: Duration = Duration::from_secs(30);

/// Between two counts, by which a place is held for longer.
const EVERY: Duration = Duration::from_secs(5);

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
        let mut rounds = interval(EVERY);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while Arc::strong_count(&self.0) > 1 {
            rounds.tick().await;
            if let Ok(verdicts) = store.decide(&presence(lease)).await
                && let Some((_, verdict)) = verdicts.last()
            {
                let counted = u32::try_from(verdict.used).unwrap_or(u32::MAX).max(1);
                self.0.store(counted, Ordering::Relaxed);
                metrics::replicas(counted);
            }
        }
    }
}

/// Holds the place of an instance for another time to live.
fn presence(lease: LeaseId) -> Call {
    let quota = Quota { limit: u32::MAX, window: Window::of(Unit::Second) };
    let parameters = Parameters { lease_ttl: TIME_TO_LIVE, ..Parameters::default() };
    let policy = Policy::nearest(Algorithm::Concurrency, quota, &parameters);
    let record = RecordId::alone(Algorithm::Concurrency);
    let ask = |hits| Ask { descriptor: 0, record, policy, hits, vetoes: false, sync: Sync::Strict };
    let hits = [Hits::Release(lease), Hits::Acquire { amount: std::num::NonZeroU64::MIN, lease }];
    let cell = Cell { key: CellKey::global(NO_DOMAIN, record), asks: hits.map(ask).into_iter().collect() };
    Call { cells: smallvec![cell], charging: Charging::EachForItself }
}
