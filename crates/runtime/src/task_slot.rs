//! A slot for one background task.

use std::future::pending;

use tokio_util::task::AbortOnDropHandle;

/// At most one task, which is aborted when the slot is dropped.
#[derive(Debug)]
pub struct TaskSlot<T>(Option<AbortOnDropHandle<T>>);

impl<T> Default for TaskSlot<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Send + 'static> TaskSlot<T> {
    /// Whether there is no task.
    pub const fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    /// Starts a task; aborts the one before, if it still runs.
    pub fn start(&mut self, task: impl Future<Output = T> + Send + 'static) {
        self.0 = Some(AbortOnDropHandle::new(tokio::spawn(task)));
    }

    /// Waits for the task, if there is one, and returns its result; `None` if it panicked.
    pub async fn finished(&mut self) -> Option<T> {
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
