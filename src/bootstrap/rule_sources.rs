//! Sources of rules: a directory, the control store, or an xDS control plane.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::{io, sync::Arc, time::Duration};

use http::Uri;
use tokio::{runtime::Handle, task::spawn_blocking, time::timeout};
use tollgate_control::{Control, Reconciler, Rules, RulesSource, VersionFile};
use tollgate_directory::{Fingerprint, Reply, Watcher};
use tollgate_limiter::ActiveRules;
use tollgate_runtime::panics::CancelOnPanic;
use tollgate_xds as xds;

use super::StartError;
use super::activation::{Activator, load_overlay};
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

/// Sources after the first rules were loaded, before changes are watched.
pub(super) struct FirstRules {
    reconciler: Reconciler,
    xds: Option<xds::Subscription>,
    /// Compiles the rules of the control plane again.
    recompile: Option<Recompile>,
    /// Fingerprint of the loaded directory, if rules come from one.
    loaded: Option<Fingerprint>,
}

/// Watches the sources and activates changes until dropped.
#[derive(Debug)]
pub(super) struct RuleSources {
    _reconciler: Reconciler,
    _xds: Option<xds::Subscription>,
    watcher: Option<Watcher>,
    overlay: Option<Watcher>,
}

/// Compiles the rules again, for another overlay.
type Recompile = Arc<dyn Fn() + Send + Sync>;

/// Loads the first rules, or continues without them if they may arrive later.
pub(super) async fn load_first(
    settings: &RulesSettings,
    activator: &Activator,
    control: &Control,
) -> Result<FirstRules, StartError> {
    let reconcile = |rules| {
        let rules_target = Arc::<ActiveRules>::clone(&activator.rules);
        Reconciler::start(
            control,
            activator.status.clone(),
            rules_target,
            rules,
            tollgate_limiter::talkers::active_domains,
        )
    };
    if settings.source == RulesSource::Directory {
        // Loading many rules takes a while, during which signals must be handled.
        let (loader, first) = (activator.clone(), settings.clone());
        let loaded = spawn_blocking(move || loader.load_directory(&first)).await;
        let fingerprint = loaded.map_err(|error| StartError::System(error.into()))??;
        let reconciler = reconcile(None);
        return Ok(FirstRules { reconciler, xds: None, recompile: None, loaded: Some(fingerprint) });
    }
    if let Some(server) = &settings.xds.server {
        let options = settings.options;
        spawn_blocking(move || load_overlay(&options))
            .await
            .map_err(|error| StartError::System(error.into()))??;
        let (xds, recompile) = follow_xds(server, settings, activator).await;
        let (reconciler, xds) = (reconcile(None), Some(xds));
        return Ok(FirstRules { reconciler, xds, recompile: Some(recompile), loaded: None });
    }
    let on_version = activator.clone();
    let mut reconciler = reconcile(Some(Rules {
        directory: settings.directory.clone(),
        options: settings.options,
        activate: Arc::new(move |loaded, version, origin| {
            on_version.activate_version(loaded, version, origin);
        }),
        last: last_version(settings).await?,
    }));
    // Rules may become active at the end of that time.
    let _ = timeout(FIRST_VERSION_TIMEOUT, reconciler.first_attempt()).await;
    if activator.rules.load().is_none() {
        tracing::warn!("not ready: waiting for the first rules version");
    }
    Ok(FirstRules { reconciler, xds: None, recompile: None, loaded: None })
}

/// Opens the file of the last version. Other sources need none: a directory is on the disk, and a store in this process is
/// empty at the start.
async fn last_version(settings: &RulesSettings) -> Result<Option<VersionFile>, StartError> {
    let directory = settings.state_directory.as_ref().filter(|_| settings.source == RulesSource::Redis);
    let file = directory.map(|directory| directory.join("rules.json"));
    let opened = spawn_blocking(move || file.map(VersionFile::open)).await;
    opened.map_err(|error| StartError::System(error.into()))
}

/// Subscribes to a control plane, and waits for its first rules unless the ports may open without.
async fn follow_xds(
    server: &Uri,
    settings: &RulesSettings,
    activator: &Activator,
) -> (xds::Subscription, Recompile) {
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

impl FirstRules {
    /// Watches for changes from here on.
    ///
    /// # Errors
    /// When the watcher thread cannot be started.
    pub(super) fn follow(
        self,
        settings: &RulesSettings,
        activator: Activator,
        on_panic: CancelOnPanic,
    ) -> io::Result<RuleSources> {
        let Self { reconciler, xds, recompile, loaded } = self;
        let (active, held) = (activator.clone(), CancelOnPanic(on_panic.0.clone()));
        let watcher = loaded.map(|fingerprint| {
            let options = settings.options;
            Watcher::spawn(&settings.directory, options.strict, Some(fingerprint), move |files, is_quiet| {
                let _held = &on_panic;
                activator.take_files(files, is_quiet, options)
            })
        });
        let watcher = watcher.transpose()?;
        let reload = watcher.as_ref().map(Watcher::reload);
        let overlay = settings.options.overlay.map(|slot| {
            let seen = slot.get().map(|overlay| overlay.fingerprint);
            Watcher::spawn(slot.directory(), false, seen, move |files, _| {
                let _held = &held;
                if active.take_overlay(slot, files) {
                    reload.iter().for_each(|reload| reload());
                    recompile.iter().for_each(|recompile| recompile());
                }
                Reply::Taken
            })
        });
        let overlay = overlay.transpose()?;
        Ok(RuleSources { _reconciler: reconciler, _xds: xds, watcher, overlay })
    }
}

impl RuleSources {
    /// Functions that have the files read again.
    pub(super) fn reloads(&self) -> Vec<impl Fn() + use<>> {
        self.overlay.iter().chain(&self.watcher).map(Watcher::reload).collect()
    }

    /// Stops watching, and blocks until the watcher threads have ended.
    pub(super) fn stop(self) {
        self.overlay.into_iter().chain(self.watcher).for_each(Watcher::stop);
    }
}
