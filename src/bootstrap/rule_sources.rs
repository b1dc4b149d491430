//! Where the rules come from, and who sees to it that changes take effect.

use std::{io, sync::Arc, time::Duration};

use tokio::{task::spawn_blocking, time::timeout};

use super::{activation::Reloader, start::StartError};
use crate::{
    config::{Fingerprint, Watcher},
    control::{Control, Follower, Rules, RulesSource},
    panics::CancelOnPanic,
    settings::{RulesSettings, Settings, StoreSettings, XdsSettings},
    xds,
};

/// How long the start waits for the first version, or for the news that there can't be one yet.
const PATIENCE: Duration = Duration::from_secs(2);

/// What operators change: in the Redis where counters live, or in this process.
pub(super) fn control(settings: &Settings) -> Result<Control, StartError> {
    let RulesSettings { source, file, .. } = &settings.rules;
    Ok(match &settings.store {
        StoreSettings::Memory { .. } => Control::memory(*source, file.clone())?,
        StoreSettings::Redis { redis, .. } => Control::redis(*source, redis)?,
    })
}

/// What there is to follow once the first rules are there.
#[derive(Debug)]
pub(super) struct Origin {
    follower: Follower,
    plane: Option<xds::Follower>,
    /// What was read of the directory, where rules come from it.
    seen: Option<Fingerprint>,
}

/// What sees to it that changes take effect, until it is dropped.
#[derive(Debug)]
pub(super) struct Source {
    _follower: Follower,
    _plane: Option<xds::Follower>,
    watcher: Option<Watcher>,
}

/// Loads the first rules, or gives up for now where they may come later.
pub(super) async fn begin(
    settings: &RulesSettings,
    reloader: &Reloader,
    control: &Control,
) -> Result<Origin, StartError> {
    let follow =
        |rules| Follower::begin(control, reloader.status.clone(), Arc::clone(&reloader.rules), rules);
    if settings.source == RulesSource::Directory {
        // Many rules take a while, in which signals are to be heard.
        let (loader, first) = (reloader.clone(), settings.clone());
        let loaded = spawn_blocking(move || loader.load_first(&first)).await;
        let seen = loaded.map_err(|error| StartError::System(error.into()))??;
        return Ok(Origin { follower: follow(None), plane: None, seen: Some(seen) });
    }
    if let Some(xds) = &settings.xds {
        let plane = Some(begin_plane(xds, settings, reloader).await);
        return Ok(Origin { follower: follow(None), plane, seen: None });
    }
    let taker = reloader.clone();
    let mut follower = follow(Some(Rules {
        directory: settings.directory.clone(),
        options: settings.options,
        take: Arc::new(move |loaded, version| taker.take_version(loaded, version)),
    }));
    if timeout(PATIENCE, follower.looked()).await.is_err() || reloader.rules.load().is_none() {
        tracing::warn!("not ready, for want of a version of the rules: it is waited for");
    }
    Ok(Origin { follower, plane: None, seen: None })
}

/// Follows a control plane; unless the ports are to be open without rules, from when it has sent some.
async fn begin_plane(xds: &XdsSettings, settings: &RulesSettings, reloader: &Reloader) -> xds::Follower {
    let (taker, listener, waits) = (reloader.clone(), reloader.clone(), !settings.start_without_rules);
    let rules = xds::Rules {
        options: settings.options,
        status: reloader.status.clone(),
        take: Arc::new(move |pushed| taker.take_pushed(pushed)),
        has_none: Arc::new(move || listener.take_silence(waits)),
    };
    let mut plane = xds::Follower::begin(xds.clone(), rules);
    if waits {
        tracing::info!("the ports open once {} has sent rules; see --start-without-rules", xds.server);
        plane.first().await;
    }
    plane
}

impl Origin {
    /// Has changes take effect from here on.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn follow(
        self,
        settings: &RulesSettings,
        reloader: Reloader,
        on_panic: CancelOnPanic,
    ) -> io::Result<Source> {
        let Self { follower, plane, seen } = self;
        let watcher = seen.map(|seen| {
            Watcher::spawn(&settings.directory, settings.options, Some(seen), move |version| {
                let _held = &on_panic;
                reloader.take(version);
            })
        });
        Ok(Source { _follower: follower, _plane: plane, watcher: watcher.transpose()? })
    }
}

impl Source {
    /// Ends it and waits until it has ended, for as long as that takes: for threads that may wait.
    pub(super) fn stop(self) {
        if let Some(watcher) = self.watcher {
            watcher.stop();
        }
    }
}
