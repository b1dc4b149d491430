//! How a changed certificate comes into use.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::{
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

use super::{
    Protocol,
    files::{Fingerprint, Version},
};
use crate::{metrics, settings::TlsSettings};

/// Between two looks at the files. They are compared by what is in them: a mounted secret changes by a link far above,
/// which no watch on a file tells.
const EVERY: Duration = Duration::from_secs(2);

/// Puts good versions of some files in use for the connections to come, and keeps the old one while there is none.
pub(super) struct Follower {
    pub(super) settings: TlsSettings,
    pub(super) protocol: Protocol,
    pub(super) seen: Fingerprint,
    /// What was no good at the last look: certificate and key may be on their way.
    pub(super) suspect: Option<Fingerprint>,
    pub(super) current: Arc<ArcSwap<ServerConfig>>,
}

impl Follower {
    /// Looks again and again; ends only by a panic.
    pub(super) async fn follow(mut self) {
        let mut looks = interval(EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let look = move || {
                self.look();
                self
            };
            match spawn_blocking(look).await {
                Ok(back) => self = back,
                Err(_) => return,
            }
        }
    }

    /// Takes what the files hold now, if that is new, and good. What is not is a failure at the second look.
    pub(super) fn look(&mut self) {
        let version = Version::read(&self.settings);
        let fingerprint = version.fingerprint();
        if fingerprint == self.seen {
            return;
        }
        let config = version.config(&self.settings, self.protocol);
        if config.is_err() && self.suspect.replace(fingerprint) != Some(fingerprint) {
            return;
        }
        self.seen = fingerprint;
        metrics::tls_reload(self.settings.port.name(), config.is_ok());
        match config {
            Ok(config) => {
                self.current.store(config);
                metrics::tls_in_use(self.settings.port.name(), version.expiry());
                let port = self.settings.port;
                tracing::info!("the {port} port uses its changed certificate for new connections");
            }
            Err(error) => tracing::error!("the changed TLS files are not used, the old ones stay: {error}"),
        }
    }
}
