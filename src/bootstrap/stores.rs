//! Where counters live, for each worker.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::start::StartError;
use crate::{
    clock::Clock,
    http::StoreFacts,
    limiter::{Counters, Fallback, Limiter, Modes, Replicas},
    metrics,
    readiness::Readiness,
    rules::Snapshot,
    settings::{Settings, StoreSettings},
    store::{BackgroundQueue, MemoryStore, RedisStore, Store, StoreError, redis::RedisSettings},
};

/// How long one who looks waits for Redis, if nobody waits longer: nothing is held up meanwhile.
const WAIT: Duration = Duration::from_millis(500);

/// What opens a store for each worker.
#[derive(Clone, Debug)]
pub(super) enum Stores {
    /// All use the same.
    Memory(MemoryStore),
    /// Each has its own connections.
    Redis {
        settings: Box<RedisSettings>,
        /// Where this instance counts by itself while Redis does not decide.
        local: MemoryStore,
        fallback: Fallback,
        counting: Counting,
        is_ready_without: bool,
    },
}

/// How it becomes known how many instances there are.
#[derive(Clone, Debug)]
pub(super) struct Counting {
    replicas: Replicas,
    /// Whether somebody counts, or nobody has to.
    is_seen_to: Arc<AtomicBool>,
}

impl Counting {
    /// How many there are, as far as is known.
    pub(super) fn replicas(&self) -> Replicas {
        self.replicas.clone()
    }
}

impl Stores {
    pub(super) fn new(settings: &Settings) -> Self {
        let (redis, max_counters) = match &settings.store {
            StoreSettings::Memory { max_counters } => {
                return Self::Memory(MemoryStore::new(*max_counters, Clock::System));
            }
            StoreSettings::Redis { redis, max_counters } => (redis, *max_counters),
        };
        metrics::redis_in_use();
        let on_store_error = settings.on_store_error;
        let local = MemoryStore::new(max_counters, Clock::System);
        let replicas = on_store_error.replicas.map(Replicas::new).unwrap_or_default();
        Self::Redis {
            settings: Box::new(redis.clone()),
            local: local.clone(),
            fallback: Fallback::new(on_store_error.policy, local, replicas.clone()),
            counting: Counting {
                replicas,
                is_seen_to: Arc::new(AtomicBool::new(on_store_error.replicas.is_some())),
            },
            is_ready_without: on_store_error.ready_without_store,
        }
    }

    /// The counters that are in this process.
    pub(super) const fn memory(&self) -> &MemoryStore {
        match self {
            Self::Memory(store) => store,
            Self::Redis { local, .. } => local,
        }
    }

    /// What waits until so many have reached their store.
    pub(super) fn readiness(&self, users: usize) -> Readiness {
        match self {
            Self::Memory(_) => Readiness::new(),
            Self::Redis { is_ready_without: true, .. } => Readiness::new(),
            Self::Redis { .. } => Readiness::with_stores(users),
        }
    }

    /// Opens a store on this runtime for a limiter, and tells `readiness` when it was reached.
    pub(super) fn limiter(
        &self,
        rules: Arc<Snapshot>,
        modes: Modes,
        readiness: &Readiness,
        later: BackgroundQueue,
    ) -> Result<Limiter, StoreError> {
        let (settings, fallback, counting) = match self {
            Self::Memory(store) => return Ok(Limiter::new(rules, Store::Memory(store.clone()), modes)),
            Self::Redis { settings, fallback, counting, .. } => (settings, fallback, counting),
        };
        let store = RedisStore::open_with(settings, later)?;
        let (connected, readiness) = (store.connected(), readiness.clone());
        tokio::spawn(async move {
            if connected.await {
                readiness.store_reached();
            }
        });
        if !counting.is_seen_to.swap(true, Ordering::Relaxed) {
            tokio::spawn(counting.replicas.clone().count(store.clone()));
        }
        Ok(Limiter::new(rules, Store::Redis(store), modes).with_fallback(fallback.clone()))
    }
}

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
        let store = RedisStore::open_with(&patient, BackgroundQueue::default())?;
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
