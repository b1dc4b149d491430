//! Turns for what takes much: bodies and answers of megabytes, and loading rules.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::timeout,
};

use super::error::ApiError;
use crate::http::access::Caller;

/// Large answers at once.
const ANSWERS: usize = 8;

/// Large bodies at once, of those who look and of those who change something: a body counts until nothing is left of what
/// was in it.
const BODIES: [usize; 2] = [6, 2];

/// Sets of rules that are loaded at once, and the like.
const LOADS: [usize; 2] = [2, 1];

/// Who goes through the rules in force at once: it takes less, and does not wait for what is loaded.
const LOOKS: [usize; 2] = [2, 1];

/// How long others are waited for.
const WAIT: Duration = Duration::from_secs(10);

/// A turn at something; it ends when this is dropped.
pub(super) type Turn = OwnedSemaphorePermit;

/// Whom a turn is taken with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane<'c> {
    /// With others who look. What this caller has loaded is loaded one after the other.
    Look(&'c Caller),
    /// With operators who change something: they wait for nobody who looks.
    Change,
}

/// The turns.
#[derive(Debug)]
pub(super) struct Turns {
    answers: Arc<Semaphore>,
    bodies: Pool,
    loads: Pool,
    looks: Pool,
    /// Each caller's own turn at having rules loaded.
    own: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

/// Turns at one thing.
#[derive(Debug)]
struct Pool {
    look: Arc<Semaphore>,
    change: Arc<Semaphore>,
}

impl Pool {
    fn new(turns: [usize; 2]) -> Self {
        let [look, change] = turns.map(|turns| Arc::new(Semaphore::new(turns)));
        Self { look, change }
    }

    const fn of(&self, lane: Lane<'_>) -> &Arc<Semaphore> {
        match lane {
            Lane::Look(_) => &self.look,
            Lane::Change => &self.change,
        }
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            answers: Arc::new(Semaphore::new(ANSWERS)),
            bodies: Pool::new(BODIES),
            loads: Pool::new(LOADS),
            looks: Pool::new(LOOKS),
            own: Mutex::default(),
        }
    }
}

impl Turns {
    /// A turn at holding a large answer.
    pub(super) async fn answer(&self) -> Result<Turn, ApiError> {
        turn(&self.answers).await
    }

    /// A turn at holding a large body, or what was in it.
    pub(super) async fn body(&self, lane: Lane<'_>) -> Result<Turn, ApiError> {
        turn(self.bodies.of(lane)).await
    }

    /// Loads rules, or does what takes as long, on a thread of its own, and takes turns with others of that kind.
    pub(super) async fn load<T: Send + 'static>(
        &self,
        lane: Lane<'_>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let own = match lane {
            Lane::Look(caller) => Some(turn(&self.own(caller)).await?),
            Lane::Change => None,
        };
        let work = move || {
            let done = work();
            drop(own);
            done
        };
        work_in_turn(self.loads.of(lane), work).await
    }

    /// Goes through the rules in force, in the same way.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        lane: Lane<'_>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        work_in_turn(self.looks.of(lane), work).await
    }

    fn own(&self, caller: &Caller) -> Arc<Semaphore> {
        let mut own = self.own.lock();
        // Those that nobody has or waits for any more.
        own.retain(|_, turns| Arc::strong_count(turns) > 1);
        let turns = own.entry(Arc::clone(&caller.name)).or_insert_with(|| Arc::new(Semaphore::new(1)));
        Arc::clone(turns)
    }
}

/// Works on a thread of its own. It is done to its end, and takes its turn until then, though nobody may wait for it any
/// more.
async fn work_in_turn<T: Send + 'static>(
    turns: &Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let turn = turn(turns).await?;
    let worked = spawn_blocking(move || {
        let done = work();
        drop(turn);
        done
    });
    // It fails by a panic, which is logged.
    worked.await.map_err(|_| ApiError::Broken)
}

async fn turn(turns: &Arc<Semaphore>) -> Result<Turn, ApiError> {
    match timeout(WAIT, Arc::clone(turns).acquire_owned()).await {
        Ok(Ok(turn)) => Ok(turn),
        Ok(Err(_)) | Err(_) => Err(ApiError::Busy("too many others ask for as much: try again in a moment")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::http::access::Role;

    fn viewer(name: &str) -> Caller {
        Caller { name: name.into(), role: Role::Viewer }
    }

    #[tokio::test]
    async fn who_changes_something_waits_for_nobody_who_looks() {
        let turns = Arc::new(Turns::default());
        let (release, ends): (Vec<_>, Vec<_>) = (0..4).map(|_| mpsc::channel::<()>()).unzip();
        let (begins, begun) = mpsc::channel();
        // Two of each: more than there are turns, and than each of them may have.
        let looks: Vec<_> = ends.into_iter().zip(["ann", "ann", "bob", "bob"]).collect();
        for (end, name) in looks {
            let (turns, begins) = (Arc::clone(&turns), begins.clone());
            tokio::spawn(async move {
                let work = move || {
                    begins.send(name).expect("heard");
                    end.recv()
                };
                turns.load(Lane::Look(&viewer(name)), work).await
            });
        }
        let mut first = Vec::new();
        while first.len() < 2 {
            tokio::task::yield_now().await;
            first.extend(begun.try_recv());
        }
        first.sort_unstable();
        assert_eq!(first, ["ann", "bob"], "each of them has one turn");
        let bodies = (0..BODIES[0]).map(|_| Arc::clone(&turns.bodies.look).try_acquire_owned());
        let _held: Vec<Turn> = bodies.map(|turn| turn.expect("free")).collect();
        assert!(turns.body(Lane::Change).await.is_ok());
        assert_eq!(turns.load(Lane::Change, || 7).await.ok(), Some(7));
        assert!(begun.try_recv().is_err(), "the others wait still");
        drop(release);
        while first.len() < 4 {
            tokio::task::yield_now().await;
            first.extend(begun.try_recv());
        }
    }
}
