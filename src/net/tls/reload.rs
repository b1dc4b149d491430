//! Reload of changed certificates.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::{
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

use super::{
    Protocol,
    files::{Fingerprint, TlsFiles},
};
use crate::{net::metrics, settings::TlsSettings};

/// Interval between two polls of the files. Their contents are compared: a mounted secret changes by a symlink in a parent
/// directory, which a watch on the file does not report.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Activates valid changes of the files for new connections; keeps the active configuration while they are invalid.
pub(super) struct Reloader {
    pub(super) settings: TlsSettings,
    pub(super) protocol: Protocol,
    /// Digest of the files last handled.
    pub(super) seen: Fingerprint,
    /// Changed files seen at the previous poll. They are handled only if they are the same at the next: they may still be
    /// written, and are not replaced atomically.
    pub(super) suspect: Option<Fingerprint>,
    pub(super) current: Arc<ArcSwap<ServerConfig>>,
}

impl Reloader {
    /// Polls the files; completes only after a panic.
    pub(super) async fn run(mut self) {
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let poll = move || {
                self.poll();
                self
            };
            match spawn_blocking(poll).await {
                Ok(reloader) => self = reloader,
                Err(_) => return,
            }
        }
    }

    /// Activates the files if they changed, are valid, and are the same as at the poll before.
    pub(super) fn poll(&mut self) {
        let files = TlsFiles::read(&self.settings);
        let fingerprint = files.fingerprint();
        if fingerprint == self.seen {
            return;
        }
        if self.suspect.replace(fingerprint) != Some(fingerprint) {
            return;
        }
        let config = files.config(&self.settings, self.protocol);
        self.seen = fingerprint;
        metrics::tls_reload(self.settings.port.name(), config.is_ok());
        match config {
            Ok(config) => {
                self.current.store(config);
                metrics::tls_in_use(self.settings.port.name(), files.expiry());
                tracing::info!(port = %self.settings.port, "TLS certificate reloaded");
            }
            Err(error) => tracing::error!(%error, "invalid TLS files; keeping the active certificate"),
        }
    }
}
