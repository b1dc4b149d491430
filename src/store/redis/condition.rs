//! Whether the store decides, told once for each change.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::store::StoreError;

/// The shortest time between two lines about failures: a store that fails now and then is told of now and then.
const QUIET: Duration = Duration::from_secs(10);

/// Logs when a store begins to fail, with the reason, and when it decides again.
#[derive(Debug, Default)]
pub(super) struct Condition {
    /// Whether the last line said that the store fails.
    is_told: AtomicBool,
    /// When it last said so.
    told: Mutex<Option<Instant>>,
}

impl Condition {
    /// Takes note of how a call ended.
    pub(super) fn note(&self, error: Option<&StoreError>) {
        // A plain read first: most calls change nothing.
        if self.is_told.load(Ordering::Relaxed) == error.is_some() {
            return;
        }
        let mut told = self.told.lock();
        match error {
            Some(error) if told.is_none_or(|told| told.elapsed() >= QUIET) => {
                *told = Some(Instant::now());
                self.is_told.store(true, Ordering::Relaxed);
                tracing::warn!(%error, "Redis does not decide; such requests are answered UNAVAILABLE");
            }
            Some(_) => {}
            None => {
                self.is_told.store(false, Ordering::Relaxed);
                tracing::info!("Redis decides again");
            }
        }
    }
}
