//! Persists changes, batching concurrent ones into one write.

use std::{mem, sync::Arc};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as AsyncMutex, oneshot},
    task::spawn_blocking,
};

use super::{file::RulesFile, state::State};
use crate::ControlError;

/// Maximum number of changes that wait for a write; further ones are refused.
pub(super) const MAX_PENDING_CHANGES: usize = 1_024;

type WriteResult = Result<(), ControlError>;

/// The file, and the next state to write.
///
/// A change is applied to the next state at once and completes when a write that contains it is done. All changes that
/// arrive during a write are written by the next one, so there are at most two states and one writing thread.
#[derive(Debug)]
pub(super) struct Disk {
    file: RulesFile,
    next: Mutex<Next>,
    /// Held during a write.
    writing: Arc<AsyncMutex<()>>,
}

#[derive(Debug)]
struct Next {
    state: Arc<State>,
    /// Callers whose changes are in the state and in no write yet.
    waiters: Vec<oneshot::Sender<WriteResult>>,
}

/// A change that was applied to the next state.
#[derive(Debug)]
pub(super) struct Pending<T> {
    result: T,
    /// Whether no write is scheduled that will contain the change.
    is_first: bool,
    pub(super) written: oneshot::Receiver<WriteResult>,
}

impl Disk {
    pub(super) fn new(file: RulesFile, state: Arc<State>) -> Self {
        let next = Mutex::new(Next { state, waiters: Vec::new() });
        Self { file, next, writing: Arc::default() }
    }

    /// Applies a change to the next state, and returns once it is written and visible in `state`.
    pub(super) async fn update<T>(
        self: &Arc<Self>,
        state: &Arc<ArcSwap<State>>,
        change: impl FnOnce(&mut State) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        let Pending { result, is_first, written } = self.apply(change)?;
        if is_first {
            // A task, so that the change is written even if its caller is cancelled.
            tokio::spawn(Arc::clone(self).write_next(Arc::clone(state)));
        }
        let lost = |_| Err(ControlError::Unavailable("the write to disk was interrupted".to_owned()));
        written.await.unwrap_or_else(lost).map(|()| result)
    }

    /// Applies a change to the next state.
    pub(super) fn apply<T>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, ControlError>,
    ) -> Result<Pending<T>, ControlError> {
        let mut next = self.next.lock();
        if next.waiters.len() >= MAX_PENDING_CHANGES {
            let reason = format!("{MAX_PENDING_CHANGES} changes are waiting for the disk");
            return Err(ControlError::Unavailable(reason));
        }
        let mut state = State::clone(&next.state);
        let result = change(&mut state)?;
        let (waiter, written) = oneshot::channel();
        next.state = Arc::new(state);
        next.waiters.push(waiter);
        Ok(Pending { result, is_first: next.waiters.len() == 1, written })
    }

    /// Writes the next state, once the write in progress is done.
    async fn write_next(self: Arc<Self>, state: Arc<ArcSwap<State>>) {
        let guard = Arc::clone(&self.writing).lock_owned().await;
        let written = spawn_blocking(move || {
            let (waiters, result) = self.write(&state);
            // A notified caller may open the file again.
            drop((self, state, guard));
            for waiter in waiters {
                // The caller may have been cancelled.
                let _ = waiter.send(result.clone());
            }
        });
        // Fails only by a panic, which is logged and reported to the waiting callers.
        let _ = written.await;
    }

    /// Writes the next state and makes it visible; returns the waiting callers. If the write fails, its changes are
    /// reverted, and so are those applied since.
    pub(super) fn write(&self, visible: &ArcSwap<State>) -> (Vec<oneshot::Sender<WriteResult>>, WriteResult) {
        let (state, mut waiters) = {
            let mut next = self.next.lock();
            (Arc::clone(&next.state), mem::take(&mut next.waiters))
        };
        if waiters.is_empty() {
            return (waiters, Ok(()));
        }
        match self.file.write(&state) {
            Ok(()) => {
                visible.store(state);
                (waiters, Ok(()))
            }
            Err(error) => {
                let mut next = self.next.lock();
                next.state = visible.load_full();
                waiters.append(&mut next.waiters);
                (waiters, Err(ControlError::Unavailable(error.to_string())))
            }
        }
    }
}
