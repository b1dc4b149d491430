//! Stores of counters, one handle for each worker and one for the admin API, and the services that decide with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{convert::Infallible, num::NonZeroU32, time::Duration};

use tokio::time;
use tollgate_admin::StoreInfo;
use tollgate_control::metrics as control_metrics;
use tollgate_core::clock::Clock;
use tollgate_limiter::{
    ActiveRules, CounterInspector, Fallback, Limiter, Modes, Observations, OwnShares, Replicas,
    metrics as limiter_metrics,
};
use tollgate_runtime::bounded_file;
use tollgate_serve::service::{ResponseOptions, Service};
use tollgate_serve::{grpc::unary::RateLimitAdapter, net::tls, readiness::Readiness};
use tollgate_store::{
    BackgroundQueue, CounterStore, LastVerdicts, MemoryStore, RedisStore, Store, StoreError, StoreSettings,
    metrics as store_metrics,
    redis::{self, RedisSettings, first_decision},
};
use tollgate_telemetry::traces::Tracer;

use crate::settings::Settings;

/// Minimum store timeout of the admin API and of loans, which delay no rate-limit calls.
const MIN_BACKGROUND_TIMEOUT: Duration = Duration::from_millis(500);

/// Interval of the metrics of the memory store.
const MEMORY_INTERVAL: Duration = Duration::from_secs(1);

/// Puts another store in front of one, as for counters that another region decides.
pub(super) type StoreLayer = Arc<dyn Fn(Arc<dyn CounterStore>) -> Arc<dyn CounterStore> + Send + Sync>;

/// Factory of store handles.
#[derive(Clone)]
pub(super) struct Stores {
    /// Redis, to which each worker has its own connections, if the counters are there.
    redis: Option<RedisStores>,
    /// Counters in this process: of all workers, or of this instance while Redis is unavailable.
    pub(super) memory: MemoryStore,
    /// Decisions without a store that decides by calls.
    fallback: Option<Fallback>,
    in_front: Option<StoreLayer>,
}

/// Factory of handles on Redis.
#[derive(Clone, Debug)]
struct RedisStores {
    settings: Box<RedisSettings>,
    /// Verdicts from which the counters in this process start.
    last_verdicts: LastVerdicts,
    replicas: Replicas,
    /// Whether a task counts the instances already, or their number is configured.
    has_replica_counter: Arc<AtomicBool>,
    ready_without_store: bool,
}

impl Stores {
    /// Opens stores behind `in_front`, if it is given.
    fn new(settings: &Settings, in_front: Option<StoreLayer>) -> Self {
        let on_store_error = settings.on_store_error;
        let fallback = |memory, replicas| Fallback::new(on_store_error.policy, memory, replicas);
        let max_counters = settings.store.max_counters;
        let Some(redis) = settings.store.redis() else {
            let memory = || MemoryStore::new(max_counters, Clock::System);
            let replicas = Replicas::new(on_store_error.replicas.unwrap_or(NonZeroU32::MIN));
            let fallback = in_front.is_some().then(|| fallback(memory(), replicas));
            return Self { redis: None, memory: memory(), fallback, in_front };
        };
        // Everything that it counts is exported at zero, so that a first event is seen as a change.
        redis::metrics::export();
        limiter_metrics::export_degraded();
        control_metrics::export_store_errors();
        // Unreadable files are an error of the store.
        if let Some((certificate, _)) = redis.client_certificate.as_ref().filter(|_| redis.servers.has_tls())
            && let Ok(pem) = bounded_file::read(certificate)
        {
            tls::client_presents("redis", &pem);
        }
        let last_verdicts = LastVerdicts::default();
        let memory = MemoryStore::new(max_counters, last_verdicts.clock());
        let replicas = on_store_error.replicas.map(Replicas::new).unwrap_or_default();
        let fallback = Some(fallback(memory.clone(), replicas.clone()));
        let redis = Some(RedisStores {
            settings: Box::new(redis),
            last_verdicts,
            replicas,
            has_replica_counter: Arc::new(AtomicBool::new(on_store_error.replicas.is_some())),
            ready_without_store: on_store_error.ready_without_store,
        });
        Self { redis, memory, fallback, in_front }
    }

    /// A handle on a store, behind the one in front of it.
    fn handle(&self, own: Arc<dyn CounterStore>, background: BackgroundQueue) -> Store {
        let counters = match &self.in_front {
            Some(in_front) => in_front(own),
            None => own,
        };
        Store::with_background(counters, background)
    }

    /// Readiness that waits until `handles` store handles have decided, if required.
    fn readiness(&self, handles: usize) -> Readiness {
        match &self.redis {
            Some(redis) if !redis.ready_without_store => Readiness::new(handles),
            _ => Readiness::new(0),
        }
    }

    /// Opens a store handle on the current runtime for the loans of this region's counters.
    #[cfg(feature = "regions")]
    pub(super) fn of_region(&self) -> Result<Store, StoreError> {
        let background = BackgroundQueue::default();
        Ok(Store::with_background(self.background(&background)?, background))
    }

    /// Opens a store on the current runtime that delays no rate-limit calls.
    fn background(&self, queue: &BackgroundQueue) -> Result<Arc<dyn CounterStore>, StoreError> {
        let Some(RedisStores { settings, .. }) = &self.redis else {
            return Ok(Arc::new(self.memory.clone()));
        };
        let timeout = settings.timeout.max(MIN_BACKGROUND_TIMEOUT);
        let settings = RedisSettings { timeout, ..RedisSettings::clone(settings) };
        Ok(Arc::new(RedisStore::open_sharing(&settings, queue.clone(), LastVerdicts::default())?))
    }

    /// The store as the admin API describes it.
    pub(super) fn info(&self, settings: &StoreSettings) -> StoreInfo {
        StoreInfo {
            kind: if self.redis.is_some() { "redis" } else { "memory" },
            address: settings.to_string(),
            memory: self.memory.clone(),
            replicas: self.replicas(),
        }
    }

    /// Number of instances that share the limits, if they may be several.
    pub(super) fn replicas(&self) -> Option<Replicas> {
        self.redis.as_ref().map(|redis| redis.replicas.clone())
    }
}

impl RedisStores {
    /// Opens a store handle on the current runtime, and updates `readiness` until it has decided.
    fn open(&self, readiness: Readiness, background: BackgroundQueue) -> Result<RedisStore, StoreError> {
        let store = RedisStore::open_sharing(&self.settings, background, self.last_verdicts.clone())?;
        let undecided = store.clone();
        tokio::spawn(async move {
            first_decision(&undecided, |why| readiness.store_failed(why)).await;
            readiness.store_decided();
        });
        if !self.has_replica_counter.swap(true, Ordering::Relaxed) {
            tokio::spawn(self.replicas.clone().count(store.clone()));
        }
        Ok(store)
    }
}

/// Opens services that share the rules and, but for their store handles, their parts.
#[derive(Clone)]
pub(super) struct ServiceFactory {
    pub(super) stores: Stores,
    /// Waits for the store handles.
    pub(super) readiness: Readiness,
    /// Shares of limits that are enforced.
    shares: OwnShares,
    pub(super) observations: Observations,
    tracer: Option<Tracer>,
    response: ResponseOptions,
    modes: Modes,
    /// Whether a limiter shares reports of utilization: the first one, of the HTTP port, which outlives the workers.
    is_shared: Arc<AtomicBool>,
}

impl ServiceFactory {
    /// Services with these `shares`, on a store behind `layer`, if it is given.
    pub(super) fn new(
        settings: &Settings,
        layer: Option<StoreLayer>,
        shares: OwnShares,
        tracer: Option<Tracer>,
    ) -> Self {
        let stores = Stores::new(settings, layer);
        // Each worker opens a store, and so does the HTTP port.
        let readiness = stores.readiness(settings.process.workers.get().saturating_add(1));
        let (observations, is_shared) = (Observations::default(), Arc::default());
        let (response, modes) = (settings.response.clone(), settings.modes);
        Self { stores, readiness, shares, observations, tracer, response, modes, is_shared }
    }

    /// Opens a service on the current runtime.
    pub(super) fn open(
        &self,
        rules: &Arc<ActiveRules>,
        background: BackgroundQueue,
    ) -> Result<RateLimitAdapter, StoreError> {
        let store: Arc<dyn CounterStore> = match &self.stores.redis {
            Some(redis) => Arc::new(redis.open(self.readiness.clone(), background.clone())?),
            None => Arc::new(self.stores.memory.clone()),
        };
        let store = self.stores.handle(store, background);
        let limiter = Limiter {
            fallback: self.stores.fallback.clone(),
            observations: self.observations.clone(),
            shares: self.shares.clone(),
            ..Limiter::new(Arc::clone(rules), store, self.modes)
        };
        if !self.is_shared.swap(true, Ordering::Relaxed) {
            tokio::spawn(limiter.share_utilization());
        }
        Ok(RateLimitAdapter {
            service: Service::new(limiter, self.response.clone()),
            tracer: self.tracer.clone(),
        })
    }

    /// Opens the counters of the admin API on the current runtime. Readiness does not depend on whether the store connects.
    pub(super) fn open_counters(&self) -> Result<CounterInspector, StoreError> {
        let background = BackgroundQueue::default();
        let store = self.stores.handle(self.stores.background(&background)?, background);
        Ok(CounterInspector { store, modes: self.modes, shares: self.shares.clone() })
    }
}

/// Updates the metrics of the memory store, and logs the first eviction of live counters. Never returns.
pub(super) async fn report_memory(store: MemoryStore) -> Infallible {
    let mut ticks = time::interval(MEMORY_INTERVAL);
    let mut was_full = false;
    loop {
        ticks.tick().await;
        let occupancy = store.occupancy();
        store_metrics::memory_store(occupancy.counters, occupancy.evicted);
        if occupancy.evicted > 0 && !was_full {
            was_full = true;
            tracing::warn!(
                counters = occupancy.counters,
                "memory store full; evicting counters (see --max-counters)"
            );
        }
    }
}
