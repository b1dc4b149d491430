//! The counters, as the admin port sees them.

use std::time::Duration;

use super::{start::StartError, stores::Stores};
use crate::{
    http::StoreFacts,
    limiter::{Counters, Modes},
    settings::Settings,
    store::{Later, MemoryStore, RedisStore, Store, redis::RedisSettings},
};

/// How long one who looks waits for Redis, if nobody waits longer: nothing is held up meanwhile.
const WAIT: Duration = Duration::from_millis(500);

/// What the admin port is given of the counters.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) counters: Counters,
    pub(super) store: StoreFacts,
}

impl Backing {
    /// Opens the store on the runtime that this is called on. Whether it can be reached is nobody's concern but of those
    /// who ask.
    pub(super) fn open(stores: &Stores, settings: &Settings) -> Result<Self, StartError> {
        let (redis, replicas) = match stores {
            Stores::Memory(memory) => return Ok(Self::memory(memory.clone(), settings.modes)),
            Stores::Redis { settings, counting, .. } => (settings, counting.replicas()),
        };
        let patient = RedisSettings { timeout: redis.timeout.max(WAIT), ..RedisSettings::clone(redis) };
        let store = RedisStore::open_with(&patient, Later::default())?;
        Ok(Self {
            counters: Counters::new(Store::Redis(store), settings.modes),
            store: StoreFacts {
                kind: "redis",
                address: settings.store.to_string(),
                memory: stores.memory().clone(),
                replicas: Some(replicas),
            },
        })
    }

    /// Counters that are in this process.
    pub(super) fn memory(memory: MemoryStore, modes: Modes) -> Self {
        let store = StoreFacts {
            kind: "memory",
            address: "memory".to_owned(),
            memory: memory.clone(),
            replicas: None,
        };
        Self { counters: Counters::new(Store::Memory(memory), modes), store }
    }
}
