//! Stores of counters: one handle for each worker, and one for the admin API.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tollgate_core::clock::Clock;
use tollgate_limiter::{ActiveRules, CounterInspector, Fallback, Limiter, Modes, OwnShares, Replicas};
use tollgate_runtime::bounded_file;
use tollgate_store::{
    BackgroundQueue, LastVerdicts, MemoryStore, RedisStore, Store, StoreError,
    primary::{PrimaryCalls, PrimaryRouter},
    redis::{RedisSettings, first_decision},
};

use super::metrics;
use super::start::StartError;
use crate::{
    http::StoreInfo,
    net::tls::TlsClient,
    readiness::Readiness,
    settings::{Settings, StoreSettings},
};

/// Minimum store timeout of the admin API: its requests delay no rate-limit calls.
const MIN_ADMIN_TIMEOUT: Duration = Duration::from_millis(500);

/// Factory of store handles.
#[derive(Clone, Debug)]
pub(super) enum Stores {
    /// One store, shared by all workers.
    Memory {
        store: MemoryStore,
        /// Calls to the primary region and decisions without it, in a region.
        primary: Option<(PrimaryCalls, Fallback)>,
    },
    /// Each worker has its own connections.
    Redis {
        settings: Box<RedisSettings>,
        /// Counters of this instance while Redis is unavailable.
        local: MemoryStore,
        /// Verdicts from which they start.
        last_verdicts: LastVerdicts,
        fallback: Fallback,
        replica_count: ReplicaCount,
        ready_without_store: bool,
        primary: Option<PrimaryCalls>,
    },
}

/// Number of instances, counted by one worker unless it is configured.
#[derive(Clone, Debug)]
pub(super) struct ReplicaCount {
    replicas: Replicas,
    /// Whether a task counts the instances already, or counting is unnecessary.
    has_counter: Arc<AtomicBool>,
}

impl Stores {
    /// Opens stores that call the primary region by `primary`, in a region.
    pub(super) fn new(settings: &Settings, primary: Option<PrimaryCalls>) -> Self {
        let on_store_error = settings.on_store_error;
        let (redis, max_counters) = match &settings.store {
            StoreSettings::Memory { max_counters } => {
                let memory = || MemoryStore::new(*max_counters, Clock::System);
                let fallback = || {
                    let replicas = Replicas::new(on_store_error.replicas.unwrap_or(NonZeroU32::MIN));
                    Fallback::new(on_store_error.policy, memory(), replicas)
                };
                let primary = primary.map(|primary| (primary, fallback()));
                return Self::Memory { store: memory(), primary };
            }
            StoreSettings::Redis { redis, max_counters } => (redis, *max_counters),
        };
        metrics::export_redis();
        record_client_certificate(redis);
        let last_verdicts = LastVerdicts::default();
        let local = MemoryStore::new(max_counters, last_verdicts.clock());
        let replicas = on_store_error.replicas.map(Replicas::new).unwrap_or_default();
        Self::Redis {
            settings: Box::new(redis.clone()),
            local: local.clone(),
            last_verdicts,
            fallback: Fallback::new(on_store_error.policy, local, replicas.clone()),
            replica_count: ReplicaCount {
                replicas,
                has_counter: Arc::new(AtomicBool::new(on_store_error.replicas.is_some())),
            },
            ready_without_store: on_store_error.ready_without_store,
            primary,
        }
    }

    /// The store of a region, if this is one, that calls the primary region.
    fn beside(store: Store, primary: Option<&PrimaryCalls>, background: BackgroundQueue) -> Store {
        match primary {
            Some(primary) => Store::PrimaryRouter(PrimaryRouter::new(store, primary.clone(), background)),
            None => store,
        }
    }

    /// Counters in this process.
    pub(super) const fn memory(&self) -> &MemoryStore {
        match self {
            Self::Memory { store, .. } => store,
            Self::Redis { local, .. } => local,
        }
    }

    /// Readiness that waits until `handles` store handles have decided, if required.
    pub(super) fn readiness(&self, handles: usize) -> Readiness {
        match self {
            Self::Memory { .. } => Readiness::new(),
            Self::Redis { ready_without_store: true, .. } => Readiness::new(),
            Self::Redis { .. } => Readiness::with_stores(handles),
        }
    }

    /// Opens a store handle on the current runtime for transactions that no request waits for.
    pub(super) fn background(&self) -> Result<Store, StoreError> {
        let redis = match self {
            Self::Memory { store, .. } => return Ok(Store::Memory(store.clone())),
            Self::Redis { settings, .. } => settings,
        };
        let redis =
            RedisSettings { timeout: redis.timeout.max(MIN_ADMIN_TIMEOUT), ..RedisSettings::clone(redis) };
        RedisStore::open_with(&redis, BackgroundQueue::default()).map(Store::Redis)
    }

    /// Number of instances that share the limits.
    pub(super) fn replicas(&self) -> Replicas {
        match self {
            Self::Memory { .. } => Replicas::default(),
            Self::Redis { replica_count, .. } => replica_count.replicas.clone(),
        }
    }

    /// Opens a store handle for a limiter on the current runtime, and updates `readiness` until it has decided.
    pub(super) fn limiter(
        &self,
        rules: Arc<ActiveRules>,
        modes: Modes,
        readiness: &Readiness,
        background: BackgroundQueue,
    ) -> Result<Limiter, StoreError> {
        let (settings, last_verdicts, fallback, replica_count, primary) = match self {
            Self::Memory { store, primary: None } => {
                return Ok(Limiter::new(rules, Store::Memory(store.clone()), modes));
            }
            Self::Memory { store, primary: Some((primary, fallback)) } => {
                let store = Self::beside(Store::Memory(store.clone()), Some(primary), background);
                return Ok(Limiter::new(rules, store, modes).with_fallback(fallback.clone()));
            }
            Self::Redis { settings, last_verdicts, fallback, replica_count, primary, .. } => {
                (settings, last_verdicts, fallback, replica_count, primary)
            }
        };
        let store = RedisStore::open_sharing(settings, background.clone(), last_verdicts.clone())?;
        let (undecided, readiness) = (store.clone(), readiness.clone());
        tokio::spawn(async move {
            first_decision(&undecided, |why| readiness.store_failed(why)).await;
            readiness.store_decided();
        });
        if !replica_count.has_counter.swap(true, Ordering::Relaxed) {
            tokio::spawn(replica_count.replicas.clone().count(store.clone()));
        }
        let store = Self::beside(Store::Redis(store), primary.as_ref(), background);
        Ok(Limiter::new(rules, store, modes).with_fallback(fallback.clone()))
    }
}

/// Records the expiry of the client certificate, if the servers get one; unreadable files are an error of the store.
fn record_client_certificate(redis: &RedisSettings) {
    if let Some((certificate, _)) = redis.client_certificate.as_ref().filter(|_| redis.servers.has_tls())
        && let Ok(pem) = bounded_file::read(certificate)
    {
        TlsClient::Redis.presents(&pem);
    }
}

/// Store handle of the admin API.
#[derive(Debug)]
pub(super) struct AdminStore {
    pub(super) counters: CounterInspector,
    pub(super) facts: StoreInfo,
}

impl AdminStore {
    /// Opens the store on the current runtime. Readiness does not depend on whether it connects.
    pub(super) fn open(stores: &Stores, settings: &Settings, shares: &OwnShares) -> Result<Self, StartError> {
        let background = BackgroundQueue::default();
        let (redis, replicas, primary) = match stores {
            Stores::Memory { store, primary } => {
                let Self { facts, .. } = Self::memory(store.clone(), settings.modes);
                let primary = primary.as_ref().map(|(primary, _)| primary);
                let store = Stores::beside(Store::Memory(store.clone()), primary, background);
                let counters = CounterInspector::new(store, settings.modes).with_shares(shares.clone());
                return Ok(Self { counters, facts });
            }
            Stores::Redis { settings, replica_count, primary, .. } => {
                (settings, replica_count.replicas.clone(), primary)
            }
        };
        let redis =
            RedisSettings { timeout: redis.timeout.max(MIN_ADMIN_TIMEOUT), ..RedisSettings::clone(redis) };
        let store = Store::Redis(RedisStore::open_with(&redis, background.clone())?);
        let store = Stores::beside(store, primary.as_ref(), background);
        Ok(Self {
            counters: CounterInspector::new(store, settings.modes).with_shares(shares.clone()),
            facts: StoreInfo {
                kind: "redis",
                address: settings.store.to_string(),
                memory: stores.memory().clone(),
                replicas: Some(replicas),
            },
        })
    }

    /// Counters in this process.
    pub(super) fn memory(memory: MemoryStore, modes: Modes) -> Self {
        let facts = StoreInfo {
            kind: "memory",
            address: "memory".to_owned(),
            memory: memory.clone(),
            replicas: None,
        };
        Self { counters: CounterInspector::new(Store::Memory(memory), modes), facts }
    }
}
