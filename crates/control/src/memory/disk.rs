//! From changes to the disk, many at once where they come fast.

use std::{mem, sync::Arc};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as AsyncMutex, oneshot},
    task::spawn_blocking,
};

use super::{file::RulesFile, state::State};
use crate::ControlError;

/// Changes that wait for the disk; more are refused.
pub(super) const MOST_WAITING: usize = 1_024;

type Outcome = Result<(), ControlError>;

/// The file, and what it is to have next.
///
/// A change is made to the next state at once and answered when a write is done that has it. However many come during a
/// write, the next one has all of them: there are two states and one thread at work at the most.
#[derive(Debug)]
pub(super) struct Disk {
    file: RulesFile,
    next: Mutex<Next>,
    /// Held by whoever writes.
    writing: Arc<AsyncMutex<()>>,
}

#[derive(Debug)]
struct Next {
    state: Arc<State>,
    /// Those whose changes are in the state and in no write.
    waiting: Vec<oneshot::Sender<Outcome>>,
}

/// A change that is in the next state.
#[derive(Debug)]
pub(super) struct Made<T> {
    made: T,
    /// Whether no write is on its way that will have it.
    is_first: bool,
    pub(super) outcome: oneshot::Receiver<Outcome>,
}

impl Disk {
    pub(super) fn new(file: RulesFile, state: Arc<State>) -> Self {
        let next = Mutex::new(Next { state, waiting: Vec::new() });
        Self { file, next, writing: Arc::default() }
    }

    /// Has the next state be what `make` makes of it, and returns when the disk and `shown` have it.
    pub(super) async fn change<T>(
        self: &Arc<Self>,
        shown: &Arc<ArcSwap<State>>,
        make: impl FnOnce(&mut State) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        let Made { made, is_first, outcome } = self.make(make)?;
        if is_first {
            // A task, so that what was made is written though nobody waits for it any more.
            tokio::spawn(Arc::clone(self).write_next(Arc::clone(shown)));
        }
        let lost = |_| Err(ControlError::Unavailable("the write to the disk broke off".to_owned()));
        outcome.await.unwrap_or_else(lost).map(|()| made)
    }

    pub(super) fn make<T>(
        &self,
        make: impl FnOnce(&mut State) -> Result<T, ControlError>,
    ) -> Result<Made<T>, ControlError> {
        let mut next = self.next.lock();
        if next.waiting.len() >= MOST_WAITING {
            return Err(ControlError::Unavailable(format!("{MOST_WAITING} changes wait for the disk")));
        }
        let mut state = State::clone(&next.state);
        let made = make(&mut state)?;
        let (tell, outcome) = oneshot::channel();
        next.state = Arc::new(state);
        next.waiting.push(tell);
        Ok(Made { made, is_first: next.waiting.len() == 1, outcome })
    }

    /// Writes what is next, once the write that is under way is done.
    async fn write_next(self: Arc<Self>, shown: Arc<ArcSwap<State>>) {
        let held = Arc::clone(&self.writing).lock_owned().await;
        let written = spawn_blocking(move || {
            let (waiting, outcome) = self.write(&shown);
            // Whoever is answered may open the file again.
            drop((self, shown, held));
            for tell in waiting {
                // Nobody may wait any more.
                let _ = tell.send(outcome.clone());
            }
        });
        // Cannot fail but by a panic, which is logged, and told to those who wait.
        let _ = written.await;
    }

    /// Writes what is next and shows it, and says who waited for that. If the disk does not take it, it is not made, nor
    /// what was made of it since.
    pub(super) fn write(&self, shown: &ArcSwap<State>) -> (Vec<oneshot::Sender<Outcome>>, Outcome) {
        let (state, mut waiting) = {
            let mut next = self.next.lock();
            (Arc::clone(&next.state), mem::take(&mut next.waiting))
        };
        if waiting.is_empty() {
            return (waiting, Ok(()));
        }
        match self.file.write(&state) {
            Ok(()) => {
                shown.store(state);
                (waiting, Ok(()))
            }
            Err(error) => {
                let mut next = self.next.lock();
                next.state = shown.load_full();
                waiting.append(&mut next.waiting);
                (waiting, Err(ControlError::Unavailable(error.to_string())))
            }
        }
    }
}
