//! Reloads the TLS files of a port at run time.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tollgate_core::clock::Clock;

use super::files::{Fingerprint, TlsFiles};
use crate::net::{TlsSettings, metrics};

/// Interval between two polls of the files. Their contents are compared: a mounted secret changes by a symlink in a parent
/// directory, which a watch on the file does not report.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Activates valid changes of the files for new connections; keeps the active configuration while they are invalid.
pub(super) struct Reloader {
    settings: TlsSettings,
    /// Digest of the files last handled.
    seen: Fingerprint,
    /// Change seen at the previous poll. Handled only if the files are the same at the next: they are not replaced
    /// atomically, and a part of a chain is a valid file too.
    changed: Option<Fingerprint>,
    /// Certificates that were not valid at their time, which may come.
    untimely: Option<Fingerprint>,
    current: Arc<ArcSwap<ServerConfig>>,
}

impl Reloader {
    /// Reloads the files in `current`, of which the files with the digest `seen` are active.
    pub(super) fn new(settings: TlsSettings, seen: Fingerprint, current: Arc<ArcSwap<ServerConfig>>) -> Self {
        Self { settings, seen, changed: None, untimely: None, current }
    }

    /// Polls the files; completes only after a panic.
    pub(super) async fn run(mut self) {
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let poll = move || {
                self.poll(now_seconds());
                self
            };
            match spawn_blocking(poll).await {
                Ok(reloader) => self = reloader,
                Err(_) => return,
            }
        }
    }

    /// Activates the files if they changed, stay the same until the second poll, and are valid at the time `now`, in seconds
    /// since the Unix epoch. A certificate that becomes valid later is activated then.
    fn poll(&mut self, now: i64) {
        let files = TlsFiles::read(&self.settings);
        let fingerprint = files.fingerprint();
        if fingerprint == self.seen {
            (self.changed, self.untimely) = (None, None);
            return;
        }
        if self.changed.replace(fingerprint) != Some(fingerprint) {
            return;
        }
        let untimely = files.check_validity(&self.settings, now).err();
        if untimely.is_none() {
            self.seen = fingerprint;
        } else if self.untimely.replace(fingerprint) == Some(fingerprint) {
            return;
        }
        let config = files.config(&self.settings);
        let config = untimely.map_or(config, Err);
        let result = if config.is_ok() { "success" } else { "error" };
        metrics::TLS_RELOADS.increment([self.settings.port.name(), result]);
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

/// The time, in seconds since the Unix epoch.
pub(super) fn now_seconds() -> i64 {
    i64::try_from(Clock::System.now().as_micros() / 1_000_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
    use tempfile::TempDir;

    use crate::net::Port;

    use super::*;

    /// A certificate that is valid from one year to another, with its issuer after it, and its key.
    fn pair(from: i32, to: i32) -> (String, String, String) {
        let mut issuer = CertificateParams::new([]).expect("valid");
        issuer.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer =
            CertifiedIssuer::self_signed(issuer, KeyPair::generate().expect("a key")).expect("signed");
        let mut params = CertificateParams::new(["localhost".to_owned()]).expect("valid");
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("signed").pem();
        (certificate, issuer.pem(), key.serialize_pem())
    }

    fn write(directory: &Path, certificate: &str, key: &str) {
        fs::write(directory.join("cert.pem"), certificate).expect("written");
        fs::write(directory.join("key.pem"), key).expect("written");
    }

    /// A reloader with a valid certificate, and the directory of its files.
    fn started() -> (TempDir, Reloader) {
        let directory = tempfile::tempdir().expect("a directory");
        let (certificate, _, key) = pair(2020, 4000);
        write(directory.path(), &certificate, &key);
        let settings = TlsSettings {
            port: Port::Grpc,
            certificate: directory.path().join("cert.pem"),
            key: directory.path().join("key.pem"),
            clients: None,
        };
        let files = TlsFiles::read(&settings);
        let config = files.config(&settings).expect("valid");
        let (seen, current) = (files.fingerprint(), Arc::new(ArcSwap::new(config)));
        (directory, Reloader::new(settings, seen, current))
    }

    /// Polls, and returns whether another configuration is active.
    fn activates(reloader: &mut Reloader, now: i64) -> bool {
        let before = reloader.current.load_full();
        reloader.poll(now);
        !Arc::ptr_eq(&before, &reloader.current.load_full())
    }

    #[test]
    fn a_chain_that_is_being_written_is_not_activated_in_part() {
        let (directory, mut reloader) = started();
        let (certificate, issuer, key) = pair(2020, 4000);
        write(directory.path(), &certificate, &key);
        assert!(!activates(&mut reloader, now_seconds()), "the issuer is still to come");
        write(directory.path(), &format!("{certificate}{issuer}"), &key);
        assert!(!activates(&mut reloader, now_seconds()));
        assert!(activates(&mut reloader, now_seconds()));
        assert!(!activates(&mut reloader, now_seconds()));
    }

    #[test]
    fn an_expired_certificate_does_not_replace_the_active_one() {
        let (directory, mut reloader) = started();
        let (expired, _, key) = pair(2001, 2002);
        write(directory.path(), &expired, &key);
        for _ in 0..4 {
            assert!(!activates(&mut reloader, now_seconds()));
        }
        let (good, _, key) = pair(2020, 4000);
        write(directory.path(), &good, &key);
        assert!(!activates(&mut reloader, now_seconds()));
        assert!(activates(&mut reloader, now_seconds()));
    }

    #[test]
    fn a_certificate_that_is_not_valid_yet_is_activated_once_it_is() {
        let (directory, mut reloader) = started();
        let (future, _, key) = pair(2030, 4000);
        write(directory.path(), &future, &key);
        let begins = date_time_ymd(2030, 1, 1).unix_timestamp();
        for now in [begins - 10, begins - 8, begins - 1] {
            assert!(!activates(&mut reloader, now), "{now}");
        }
        assert!(activates(&mut reloader, begins));
    }
}
