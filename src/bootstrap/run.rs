//! `tollgate serve`: a server from startup to the signal that stops it.

use std::{convert::Infallible, io, time::Duration};

use tokio::{
    runtime::Handle,
    select,
    time::{self, MissedTickBehavior},
};
use tollgate_limiter::talkers;
use tollgate_rules::config::Reload;
use tollgate_runtime::panics;

use super::{
    busy_time::BusyTime,
    drain::{ComponentFailure, Running},
    metrics, rlimit,
    signals::{Signals, StopSignal},
    start::{Server, StartError},
};
use crate::{
    fleet::history,
    settings::{Settings, StoreSettings},
    statsd::StatsdExporter,
};

/// Interval of the metrics' maintenance, which closes an interval of the history.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(history::INTERVAL_S);

/// Reason that the process exits with an error.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Start(#[from] StartError),
    /// The operating system refused a resource.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// An essential component ended.
    #[error(transparent)]
    Component(#[from] ComponentFailure),
    /// A second signal arrived during shutdown.
    #[error("stopped immediately by a second signal")]
    Forced {
        /// 128 plus the number of the signal.
        code: u8,
    },
}

impl RunError {
    /// Exit status of the process.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Forced { code } => *code,
            Self::Start(_) | Self::System(_) | Self::Component(_) => 1,
        }
    }
}

/// Serves until SIGTERM or SIGINT, then shuts down in order; a second signal stops it immediately.
///
/// # Errors
/// [`RunError`].
pub async fn run(settings: Settings) -> Result<(), RunError> {
    for notice in &settings.notices {
        tracing::warn!(%notice, "settings need attention");
    }
    // Installed first, so that a signal during startup is not lost.
    let mut signals = Signals::install()?;
    panics::install_hook(metrics::panicked);
    rlimit::raise(settings.grpc.max_connections);
    talkers::start(settings.top_talkers)?;
    let exporter = metrics::exporter(settings.process.metric_names);
    let _busy_time = BusyTime::of(&"main", &Handle::current());
    let statsd = settings.statsd.clone().map(StatsdExporter::start).transpose()?;
    let store = settings.store.clone();
    let workers = settings.process.workers;
    let mut running = select! {
        biased;
        stop = signals.next(|| {}) => {
            tracing::info!(signal = stop.name(), "stopped during startup");
            return Ok(());
        }
        started = Server::start(settings, Some(exporter)) => started?,
    };
    log_start(&running, &store, workers.get());

    let failure = select! {
        result = serve(&mut running, &mut signals) => result?,
        never = maintain() => match never {},
    };
    select! {
        biased;
        stop = signals.next(|| {}) => return Err(forced(stop)),
        () = stop(running, statsd) => tracing::info!("stopped"),
    }
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}

/// Shuts down in order; the last counts are flushed to StatsD.
async fn stop(running: Running, statsd: Option<StatsdExporter>) {
    running.stop().await;
    if let Some(statsd) = statsd {
        statsd.stop().await;
    }
}

/// Serves until a signal arrives, and for the drain delay after it; or until a component fails, which it returns.
async fn serve(running: &mut Running, signals: &mut Signals) -> Result<Option<ComponentFailure>, RunError> {
    let reloads = running.rule_sources.reloads();
    let reload = || {
        tracing::info!(sources = reloads.len(), "SIGHUP: reading rule files again");
        reloads.iter().for_each(Reload::request);
    };
    let failure = select! {
        stop = signals.next(reload) => {
            tracing::info!(signal = stop.name(), "draining: failing health checks, finishing calls");
            select! {
                biased;
                stop = signals.next(|| {}) => return Err(forced(stop)),
                failure = running.begin_drain() => failure,
            }
        }
        failure = running.failed() => Some(failure),
    };
    if let Some(component) = failure {
        tracing::error!(failure = %component, "essential component ended; stopping");
    }
    Ok(failure)
}

const fn forced(stop: StopSignal) -> RunError {
    RunError::Forced { code: stop.exit_code() }
}

/// Logs the addresses and the store of the running server.
fn log_start(running: &Running, store: &StoreSettings, workers: usize) {
    let rules = running.rules().load().map_or(0, |rules| rules.rules().count());
    let (grpc, http) = (running.grpc_address(), running.http_address());
    let admin = running.admin_address().map_or_else(|| "off".to_owned(), |address| address.to_string());
    if let Some(metrics) = running.metrics_address() {
        tracing::info!(%metrics, "metrics port open");
    }
    if let Some(region) = running.region_address() {
        tracing::info!(%region, "service between regions open");
    }
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(version, %grpc, %http, %admin, %store, rules, workers, "tollgate started");
    if let StoreSettings::Memory { .. } = store {
        tracing::info!("memory store: limits apply per instance");
    }
}

/// Samples the history and keeps the memory of metrics bounded. Never returns.
async fn maintain() -> Infallible {
    let mut ticks = time::interval(MAINTENANCE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        metrics::maintain();
    }
}
