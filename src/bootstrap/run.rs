//! `tollgate serve`: a server from its start to the signal that ends it.

use std::{convert::Infallible, io, time::Duration};

use tokio::{
    select,
    time::{self, MissedTickBehavior},
};

use super::{
    drain::{Failed, Running},
    rlimit,
    signals::{Signals, Stop},
    start::{Server, StartError},
};
use crate::{
    metrics::{self, Exporter},
    panics,
    settings::{Settings, StoreSettings},
    statsd::Statsd,
    top,
};

/// Between two rounds of the exporter's housekeeping, which end an interval of the history.
const UPKEEP: Duration = Duration::from_secs(metrics::INTERVAL_S);

/// Why a process did not end well.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The operating system refused something that everything needs.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// Counting was started twice.
    #[error("cannot start: {0}")]
    Metrics(String),
    /// A part of it ended; the process cannot go on without.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// It was told a second time to stop.
    #[error("stopped at once by a second signal")]
    Forced {
        /// 128 plus the number of the signal.
        code: u8,
    },
}

impl RunError {
    /// What the process exits with.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Forced { code } => *code,
            Self::Start(_) | Self::System(_) | Self::Metrics(_) | Self::Failed(_) => 1,
        }
    }
}

/// Serves until SIGTERM, SIGINT or SIGHUP, then stops in order; a second signal ends that at once.
///
/// # Errors
/// [`RunError`].
pub async fn run(settings: Settings) -> Result<(), RunError> {
    for notice in &settings.notices {
        tracing::warn!("{notice}");
    }
    // Heard from here on, so that a signal during the start is not lost.
    let mut signals = Signals::hear()?;
    panics::install_hook(metrics::panicked);
    rlimit::claim(settings.grpc.max_connections);
    top::start(settings.top_talkers)?;
    let exporter = metrics::install(settings.process.metric_names)
        .map_err(|error| RunError::Metrics(error.to_string()))?;
    let statsd = settings.statsd.clone().map(Statsd::start).transpose()?;
    let store = settings.store.clone();
    let workers = settings.process.workers;
    let mut running = select! {
        biased;
        stop = signals.next() => {
            tracing::info!("{}: stopped before it served anyone", stop.name());
            return Ok(());
        }
        started = Server::start(settings, Some(exporter.clone())) => started?,
    };
    announce(&running, &store, workers.get());

    let failure = select! {
        ended = serve(&mut running, &mut signals) => ended?,
        never = maintain(&exporter) => match never {},
    };
    select! {
        biased;
        stop = signals.next() => return Err(forced(stop)),
        () = stop(running, statsd) => tracing::info!("stopped"),
    }
    failure.map_or(Ok(()), |failed| Err(failed.into()))
}

/// Ends everything in order; what was counted until the end is sent.
async fn stop(running: Running, statsd: Option<Statsd>) {
    running.stop().await;
    if let Some(statsd) = statsd {
        statsd.stop().await;
    }
}

/// Serves until a signal comes, and for the drain delay after it; or until a part of it fails, which is told.
async fn serve(running: &mut Running, signals: &mut Signals) -> Result<Option<Failed>, RunError> {
    let failure = select! {
        stop = signals.next() => {
            tracing::info!("{}: health checks fail, and calls in flight are finished", stop.name());
            select! {
                biased;
                stop = signals.next() => return Err(forced(stop)),
                failed = running.retire() => failed,
            }
        }
        failed = running.failed() => Some(failed),
    };
    if let Some(failed) = failure {
        tracing::error!("{failed}: stopping");
    }
    Ok(failure)
}

const fn forced(stop: Stop) -> RunError {
    RunError::Forced { code: stop.exit_code() }
}

/// Says what runs, where.
fn announce(running: &Running, store: &StoreSettings, workers: usize) {
    let rules = running.rules().load().map_or(0, |rules| rules.rules().count());
    let (grpc, http) = (running.grpc_address(), running.http_address());
    let admin = running.admin_address().map_or_else(|| "off".to_owned(), |address| address.to_string());
    if let Some(metrics) = running.metrics_address() {
        tracing::info!(%metrics, "metrics have a port of their own");
    }
    tracing::info!(%grpc, %http, %admin, %store, rules, workers, "tollgate {} listens", env!("CARGO_PKG_VERSION"));
    if let StoreSettings::Memory { .. } = store {
        tracing::info!("the memory store counts in this process: limits hold for this instance alone");
    }
}

/// Keeps the exporter's memory bounded; never ends.
async fn maintain(exporter: &Exporter) -> Infallible {
    let mut rounds = time::interval(UPKEEP);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        exporter.maintain();
    }
}
