//! Closed-loop load: a fixed number of requests in flight, as fast as responses arrive.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fastrand::Rng;
use tokio::task::{JoinSet, LocalSet};

use super::{
    frames::Connection,
    samples::{By, Outcome},
};

/// Parameters of a closed loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClosedLoop {
    pub(super) connections: usize,
    /// Requests in flight on each.
    pub(super) streams: usize,
    pub(super) deadline: Duration,
    /// Requests after which it ends,
    pub(super) requests: u64,
    /// or after this time.
    pub(super) time: Duration,
}

/// Results of a closed loop.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) sent: u64,
    /// Answered by the store.
    pub(super) decided: u64,
    pub(super) by_policy: u64,
    pub(super) errors: u64,
    pub(super) took: Duration,
}

impl Tally {
    fn count(&mut self, outcome: Outcome, by: By) {
        match (outcome, by) {
            (Outcome::Error(_) | Outcome::Late, _) => self.errors += 1,
            (_, By::Store) => self.decided += 1,
            (_, By::Policy) => self.by_policy += 1,
        }
    }
}

impl ClosedLoop {
    /// Sends requests as `body` makes them, on this thread.
    pub(super) fn run(self, port: u16, seed: u64, body: impl Fn(&mut Rng) -> Bytes + 'static) -> Tally {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(LocalSet::new().run_until(self.send(port, seed, Rc::new(body))))
    }

    async fn send(self, port: u16, seed: u64, body: Rc<dyn Fn(&mut Rng) -> Bytes>) -> Tally {
        let random = Rc::new(RefCell::new(Rng::with_seed(seed)));
        let (sent, tally) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Tally::default())));
        let begun = Instant::now();
        let mut streams = JoinSet::new();
        for _ in 0..self.connections {
            let wire = Connection::open(port, self.deadline).await;
            for _ in 0..self.streams {
                let (wire, body, random) = (wire.clone(), Rc::clone(&body), Rc::clone(&random));
                let (sent, tally) = (Rc::clone(&sent), Rc::clone(&tally));
                streams.spawn_local(async move {
                    while sent.get() < self.requests && begun.elapsed() < self.time {
                        sent.set(sent.get() + 1);
                        let message = body(&mut random.borrow_mut());
                        let (outcome, by) = wire.send(message).await;
                        tally.borrow_mut().count(outcome, by);
                    }
                });
            }
        }
        streams.join_all().await;
        Tally { sent: sent.get(), took: begun.elapsed(), ..tally.take() }
    }
}
