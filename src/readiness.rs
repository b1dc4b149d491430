//! Readiness of the process, shared by the gRPC health service, the HTTP port and the admin API.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// Stage of a process's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for the first rules, or for the first connection to the store.
    Starting,
    /// Rules are active, and the store was reached at least once.
    Ready,
    /// Shutdown was requested. Final.
    Stopping,
}

/// Shared, observable [`Phase`]; clones refer to the same one.
#[derive(Clone, Debug)]
pub struct Readiness {
    phase: Arc<watch::Sender<Phase>>,
    missing: Arc<Mutex<Preconditions>>,
}

/// Preconditions of readiness that are not met yet. Each has to be met only once: a later outage of the store is
/// handled per response, and must not take every instance out of service at the same time.
#[derive(Debug)]
struct Preconditions {
    rules: bool,
    /// Store handles not connected yet; each worker has its own, and so has the HTTP port.
    stores: usize,
}

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

impl Readiness {
    /// Ready once rules are active.
    pub(crate) fn new() -> Self {
        Self::waiting_for(Preconditions { rules: true, stores: 0 })
    }

    /// Ready once rules are active and `stores` store handles have connected.
    pub(crate) fn with_stores(stores: usize) -> Self {
        Self::waiting_for(Preconditions { rules: true, stores })
    }

    fn waiting_for(missing: Preconditions) -> Self {
        let phase = Arc::new(watch::Sender::new(Phase::Starting));
        Self { phase, missing: Arc::new(Mutex::new(missing)) }
    }

    /// Records that rules are active.
    pub(crate) fn rules_loaded(&self) {
        self.satisfy(|missing| missing.rules = false);
    }

    /// Records that one store handle connected for the first time.
    pub(crate) fn store_reached(&self) {
        self.satisfy(|missing| missing.stores = missing.stores.saturating_sub(1));
    }

    fn satisfy(&self, update: impl Fn(&mut Preconditions)) {
        let mut missing = self.missing.lock();
        update(&mut missing);
        if !missing.rules && missing.stores == 0 {
            self.advance(|phase| phase == Phase::Starting, Phase::Ready);
        }
    }

    /// Records that shutdown was requested.
    pub(crate) fn stop(&self) {
        self.advance(|_| true, Phase::Stopping);
    }

    fn advance(&self, applies: impl Fn(Phase) -> bool, next: Phase) {
        self.phase.send_if_modified(|phase| {
            let changes = applies(*phase) && *phase != next;
            if changes {
                *phase = next;
            }
            changes
        });
    }

    /// Current phase.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Receiver of phase changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }
}
