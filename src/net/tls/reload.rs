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
    /// Invalid pair seen at the previous poll. Reported only if still invalid at the next: the two files are not replaced
    /// atomically.
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

    /// Activates the files if they changed and are valid. Invalid ones are an error at the second poll.
    pub(super) fn poll(&mut self) {
        let files = TlsFiles::read(&self.settings);
        let fingerprint = files.fingerprint();
        if fingerprint == self.seen {
            return;
        }
        let config = files.config(&self.settings, self.protocol);
        if config.is_err() && self.suspect.replace(fingerprint) != Some(fingerprint) {
            return;
        }
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
