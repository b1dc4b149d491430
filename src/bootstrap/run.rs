//! `tollgate serve`: a server from startup to the signal that stops it.

use std::{io, mem};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::{runtime::Handle, select};
use tollgate_limiter::talkers;
use tollgate_runtime::panics;
use tollgate_serve::net::Port;
use tollgate_store::StoreSettings;

use super::metrics::{self, busy_time};
use super::{ComponentFailure, StartError, running::Running, start::start};
use crate::settings::Settings;

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
    raise(settings.grpc.max_connections);
    talkers::start(settings.admin.top_talkers)?;
    let exporter = metrics::exporter(settings.process.reference_metrics);
    let _busy_time = busy_time(&"main", &Handle::current());
    let store = settings.store.clone();
    let workers = settings.process.workers;
    let mut running = select! {
        biased;
        stop = signals.next(|| {}) => {
            tracing::info!(signal = stop.name, "stopped during startup");
            return Ok(());
        }
        started = start(settings, Some(exporter)) => started?,
    };
    log_start(&running, &store, workers.get());

    let failure = serve(&mut running, &mut signals).await?;
    select! {
        biased;
        stop = signals.next(|| {}) => return Err(RunError::Forced { code: stop.exit_code }),
        () = running.stop() => tracing::info!("stopped"),
    }
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}

/// Serves until a signal arrives, and for the drain delay after it; or until a component fails, which it returns.
async fn serve(running: &mut Running, signals: &mut Signals) -> Result<Option<ComponentFailure>, RunError> {
    let reloads = mem::take(&mut running.reloads);
    let reload = || {
        tracing::info!(sources = reloads.len(), "SIGHUP: reading rule files again");
        reloads.iter().for_each(|reload| reload());
    };
    let failure = select! {
        stop = signals.next(reload) => {
            tracing::info!(signal = stop.name, "draining: failing health checks, finishing calls");
            select! {
                biased;
                stop = signals.next(|| {}) => return Err(RunError::Forced { code: stop.exit_code }),
                failure = running.begin_drain() => failure,
            }
        }
        failure = running.components.failed() => Some(failure),
    };
    if let Some(component) = &failure {
        tracing::error!(failure = %component, "essential component ended; stopping");
    }
    Ok(failure)
}

/// Logs the addresses and the store of the running server.
fn log_start(running: &Running, store: &StoreSettings, workers: usize) {
    let rules = running.instance.rules.load().map_or(0, |rules| rules.rules().count());
    let address =
        |port| running.address(port).map_or_else(|| "off".to_owned(), |address| address.to_string());
    let (grpc, http, admin) = (&running.grpc_address, address(Port::Http), address(Port::Admin));
    if let Some(metrics) = running.address(Port::Metrics) {
        tracing::info!(%metrics, "metrics port open");
    }
    if let Some(region) = running.address(Port::Region) {
        tracing::info!(%region, "service between regions open");
    }
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(version, %grpc, %http, %admin, %store, rules, workers, "tollgate started");
    if store.redis().is_none() {
        tracing::info!("memory store: limits apply per instance");
    }
}

/// Receiver of SIGTERM, SIGINT and SIGHUP.
#[derive(Debug)]
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

/// Signal that stops the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StopSignal {
    name: &'static str,
    /// Exit status that a shell reports for a process ended by the signal: 128 plus its number.
    exit_code: u8,
}

const TERMINATE: StopSignal = StopSignal { name: "SIGTERM", exit_code: 143 };
const INTERRUPT: StopSignal = StopSignal { name: "SIGINT", exit_code: 130 };

impl Signals {
    /// Installs handlers; from now on the signals no longer end the process by themselves.
    fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal that stops the process, and calls `reload` for each SIGHUP until then.
    async fn next(&mut self, reload: impl Fn()) -> StopSignal {
        loop {
            select! {
                _ = self.terminate.recv() => return TERMINATE,
                _ = self.interrupt.recv() => return INTERRUPT,
                _ = self.hang_up.recv() => reload(),
            }
        }
    }
}

/// File descriptors reserved for everything but gRPC connections: 1,024 for each of the three HTTP ports, and 512 for Redis,
/// files and so on.
#[cfg(target_os = "linux")]
const RESERVED_DESCRIPTORS: u64 = 3 * 1_024 + 512;

/// Raises the limit to the maximum that the system allows, and warns if `connections` may exceed it.
#[cfg(target_os = "linux")]
fn raise(connections: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let before = getrlimit(Resource::Nofile);
    let highest = Rlimit { current: before.maximum, maximum: before.maximum };
    // A refusal is logged below if it matters.
    let limit = if setrlimit(Resource::Nofile, highest).is_ok() { highest } else { before };
    let needed = (connections as u64).saturating_add(RESERVED_DESCRIPTORS);
    if let Some(limit) = limit.current.filter(|limit| *limit < needed) {
        tracing::warn!(limit, needed, "too few file descriptors for --max-connections (ulimit -n)");
    }
}

/// Leaves the limit unchanged on other systems.
#[cfg(not(target_os = "linux"))]
const fn raise(_connections: usize) {}
