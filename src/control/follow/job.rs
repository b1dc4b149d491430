//! Something that goes on beside.

use std::future::pending;

use tokio_util::task::AbortOnDropHandle;

/// One task at a time, which ends with this.
#[derive(Debug)]
pub(super) struct Job<T>(Option<AbortOnDropHandle<T>>);

impl<T> Default for Job<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Send + 'static> Job<T> {
    pub(super) const fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    /// Begins; what was begun before, if it has not ended, does so now.
    pub(super) fn begin(&mut self, task: impl Future<Output = T> + Send + 'static) {
        self.0 = Some(AbortOnDropHandle::new(tokio::spawn(task)));
    }

    /// Waits for what was begun, if something was; a panic in it, which is logged, gives nothing.
    pub(super) async fn finished(&mut self) -> Option<T> {
        match &mut self.0 {
            Some(task) => {
                let done = task.await.ok();
                self.0 = None;
                done
            }
            None => pending().await,
        }
    }
}
