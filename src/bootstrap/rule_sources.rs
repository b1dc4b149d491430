//! Sources of rules: a directory, the control store, or an xDS control plane.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::{io, sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, FutureExt as _};
use http::Uri;
use tokio::time::{Instant, timeout};
use tokio::{runtime::Handle, task::spawn_blocking};
use tokio_util::sync::CancellationToken;
use tollgate_control::{Control, Reconciler, Rules, RulesSource, VersionFile};
use tollgate_directory::{Reply, Watcher};
use tollgate_limiter::ActiveRules;
use tollgate_rules::config::OverlaySlot;
use tollgate_runtime::panics::CancelOnPanic;
use tollgate_xds as xds;

use super::StartError;
use super::activation::{Activator, load_overlay};
use super::components::{Component, MIN_STOP_TIMEOUT};
use crate::settings::{RulesSettings, Settings};

/// Time that startup waits for the first version, or for the confirmation that no version exists yet.
const FIRST_VERSION_TIMEOUT: Duration = Duration::from_secs(2);

/// Opens the control store: in the Redis of the counters, or in this process.
pub(super) fn open_control(settings: &Settings) -> Result<Control, StartError> {
    let RulesSettings { source, state_directory, .. } = &settings.rules;
    let control = match settings.store.redis() {
        None => Control::memory(*source),
        Some(redis) => Control::redis(*source, &redis)?,
    };
    if let Some(directory) = state_directory {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        created.map_err(|error| format!("cannot use --state-directory {}: {error}", directory.display()))?;
        control.open_records(directory.join("records"))?;
    }
    Ok(control)
}

/// Function that has the files of a source read again, or its rules compiled again.
pub(super) type Reload = Arc<dyn Fn() + Send + Sync>;

/// Sources of the rules, and of the records that operators change. Their changes are activated until it is dropped.
pub(super) struct RuleSources {
    _reconciler: Reconciler,
    _xds: Option<xds::Subscription>,
    /// Watchers of the rules' files, and of the overlay's.
    watchers: Vec<Watcher>,
}

impl RuleSources {
    /// Loads the first rules, or continues without them if they may arrive later. A panic in a watcher cancels `panicked`.
    pub(super) async fn start(
        settings: &RulesSettings,
        activator: &Activator,
        control: &Control,
        panicked: &CancellationToken,
    ) -> Result<Self, StartError> {
        let reconcile = |rules| {
            let (status, active) = (activator.status.clone(), Arc::<ActiveRules>::clone(&activator.rules));
            Reconciler::start(control, status, active, rules, tollgate_limiter::talkers::active_domains)
        };
        let (mut xds, mut recompile, mut watchers) = (None, None, Vec::new());
        let reconciler = if settings.source == RulesSource::Directory {
            let watcher = watch_directory(settings, activator, panicked).await?;
            recompile = Some(Arc::new(watcher.reload()) as Reload);
            watchers.push(watcher);
            reconcile(None)
        } else if let Some(server) = &settings.xds.server {
            let options = settings.options;
            blocking(move || load_overlay(&options)).await??;
            let (subscription, again) = subscribe(server, settings, activator).await;
            (xds, recompile) = (Some(subscription), Some(again));
            reconcile(None)
        } else {
            let mut reconciler = reconcile(Some(stored_rules(settings, activator).await?));
            // Rules may become active at the end of that time.
            let _ = timeout(FIRST_VERSION_TIMEOUT, reconciler.first_attempt()).await;
            if activator.rules.load().is_none() {
                tracing::warn!("not ready: waiting for the first rules version");
            }
            reconciler
        };
        let overlay = settings.options.overlay;
        let overlay = overlay.map(|slot| watch_overlay(slot, activator.clone(), recompile, panicked));
        watchers.extend(overlay.transpose()?);
        Ok(Self { _reconciler: reconciler, _xds: xds, watchers })
    }

    /// Functions that have the files read again, those of the overlay first.
    pub(super) fn reloads(&self) -> Vec<Reload> {
        self.watchers.iter().rev().map(|watcher| Arc::new(watcher.reload()) as Reload).collect()
    }
}

impl Component for RuleSources {
    fn stop(self: Box<Self>, _: Instant) -> BoxFuture<'static, ()> {
        // The threads of the watchers may block.
        let stopped = spawn_blocking(move || self.watchers.into_iter().rev().for_each(Watcher::stop));
        let stop = async move {
            if timeout(MIN_STOP_TIMEOUT, stopped).await.is_err() {
                tracing::warn!("rules still loading; stopping without waiting");
            }
        };
        stop.boxed()
    }
}

/// Runs work that takes a while, during which signals must be handled.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StartError> {
    spawn_blocking(work).await.map_err(|error| StartError::System(error.into()))
}

/// Loads the rules of a directory, and watches it from then on.
async fn watch_directory(
    settings: &RulesSettings,
    activator: &Activator,
    panicked: &CancellationToken,
) -> Result<Watcher, StartError> {
    let (loader, first) = (activator.clone(), settings.clone());
    let loaded = blocking(move || loader.load_directory(&first)).await??;
    let (options, activator, alarm) = (settings.options, activator.clone(), CancelOnPanic(panicked.clone()));
    let watcher =
        Watcher::spawn(&settings.directory, options.strict, Some(loaded), move |files, is_quiet| {
            let _held = &alarm;
            activator.take_files(files, is_quiet, options)
        })?;
    Ok(watcher)
}

/// Watches the overlay of the rules, which are compiled again when it changes.
fn watch_overlay(
    slot: &'static OverlaySlot,
    activator: Activator,
    recompile: Option<Reload>,
    panicked: &CancellationToken,
) -> io::Result<Watcher> {
    let seen = slot.get().map(|overlay| overlay.fingerprint);
    let alarm = CancelOnPanic(panicked.clone());
    Watcher::spawn(slot.directory(), false, seen, move |files, _| {
        let _held = &alarm;
        if activator.take_overlay(slot, files) {
            recompile.iter().for_each(|recompile| recompile());
        }
        Reply::Taken
    })
}

/// Rules of the control store. The last version on the disk stands in for it; other sources need none: a directory is on
/// the disk, and a store in this process is empty at the start.
async fn stored_rules(settings: &RulesSettings, activator: &Activator) -> Result<Rules, StartError> {
    let directory = settings.state_directory.as_ref().filter(|_| settings.source == RulesSource::Redis);
    let file = directory.map(|directory| directory.join("rules.json"));
    let activator = activator.clone();
    Ok(Rules {
        directory: settings.directory.clone(),
        options: settings.options,
        activate: Arc::new(move |loaded, version, origin| {
            activator.activate_version(loaded, version, origin);
        }),
        last: blocking(move || file.map(VersionFile::open)).await?,
    })
}

/// Subscribes to a control plane, and waits for its first rules unless the ports may open without.
async fn subscribe(
    server: &Uri,
    settings: &RulesSettings,
    activator: &Activator,
) -> (xds::Subscription, Reload) {
    let (on_push, on_empty, required) = (activator.clone(), activator.clone(), !settings.start_without_rules);
    let rules = xds::RulesSink {
        options: settings.options,
        status: activator.status.clone(),
        apply: Arc::new(move |pushed| on_push.activate_pushed(pushed)),
        on_silence: Arc::new(move || on_empty.handle_empty_control_plane(required)),
        held: Arc::default(),
    };
    let again = rules.clone();
    let mut follower = xds::Subscription::start(server, settings.xds.clone(), rules);
    if required {
        tracing::info!(%server, "waiting for rules before opening ports");
        follower.first_accepted().await;
    }
    let runtime = Handle::current();
    let recompile = move || {
        // The watcher's thread is outside of the runtime.
        let _entered = runtime.enter();
        again.recompile();
    };
    (follower, Arc::new(recompile))
}
