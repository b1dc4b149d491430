//! Turns for calls that nobody waits for.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests at the most whose calls that nobody waits for are under way or wait for another attempt: what an outage
/// leaves behind is bounded.
const MOST: u32 = 10_000;

/// Turns for calls that nobody waits for; clones give out the same ones, and a process has one of these.
#[derive(Clone, Debug)]
pub struct Later(Arc<Semaphore>);

impl Default for Later {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST as usize)))
    }
}

impl Later {
    /// A turn, until it is dropped; none when there are too many.
    pub(super) fn begin(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }

    /// Waits until no turn is given out.
    pub async fn settled(&self) {
        // The permits go back at once.
        drop(self.0.acquire_many(MOST).await);
    }
}
