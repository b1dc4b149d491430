//! Load: open-loop, whose requests are sent when due, whatever the outcome of earlier ones; and closed-loop, with a fixed
//! number of requests in flight, as fast as responses arrive.

use std::sync::atomic::AtomicU64;
use std::thread::{self, JoinHandle};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::LocalSet;

use super::{frames::Connection, *};

/// The load to generate.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Requests per second, at equal distances.
    pub(super) rate: u32,
    pub(super) connections: usize,
    /// When callers give up.
    pub(super) deadline: Duration,
    /// Requests, which take turns.
    pub(super) bodies: Vec<Bytes>,
}

/// Running load, on threads of its own, so that the test does not delay it.
#[derive(Debug)]
pub(super) struct OpenLoop {
    began: Instant,
    stop: Arc<AtomicBool>,
    /// When the last answer came that was an error or not the store's, in microseconds since the beginning.
    abnormal: Arc<AtomicU64>,
    ended: JoinHandle<Vec<Sample>>,
}

impl OpenLoop {
    pub(super) fn start(port: u16, plan: Plan) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let abnormal = Arc::new(AtomicU64::new(0));
        let (connected, ready) = std::sync::mpsc::channel();
        let (stopped, noted) = (Arc::clone(&stop), Arc::clone(&abnormal));
        let ended = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let load = async {
                let mut wires = Vec::new();
                for _ in 0..plan.connections {
                    wires.push(Connection::open(port, plan.deadline).await);
                }
                let (due, dues) = unbounded_channel();
                let began = Instant::now();
                connected.send(began).expect("it is waited for");
                let rate = plan.rate;
                thread::spawn(move || pace(began, rate, &stopped, |number| due.send(number).is_ok()));
                send_due(began, dues, wires, plan, noted).await
            };
            runtime.expect("a runtime").block_on(LocalSet::new().run_until(load))
        });
        let began = ready.recv().expect("it connects");
        Self { began, stop, abnormal, ended }
    }

    /// The time by which samples go.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits until all answers have been the store's for so long.
    pub(super) fn wait_until_normal_for(&self, calm: Duration) {
        let begun = self.now();
        loop {
            let abnormal = Duration::from_micros(self.abnormal.load(Ordering::Relaxed)).max(begun);
            if self.now() > abnormal + calm {
                return;
            }
            assert!(self.now() < begun + Duration::from_secs(90), "answers do not become normal again");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends nothing more, and gives what became of everything.
    pub(super) fn end(self) -> Samples {
        self.stop.store(true, Ordering::Relaxed);
        Samples::new(self.ended.join().expect("no panic"))
    }
}

/// When a request is due, after the beginning.
fn due(number: u64, rate: u32) -> Duration {
    Duration::from_nanos(number * 1_000_000_000 / u64::from(rate))
}

/// Sends the number of due requests, each time that it grows.
fn pace(began: Instant, rate: u32, stop: &AtomicBool, tell: impl Fn(u64) -> bool) {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let now = began.elapsed();
        while due(number, rate) <= now {
            number += 1;
        }
        if !tell(number) {
            return;
        }
        thread::sleep(due(number, rate).saturating_sub(began.elapsed()));
    }
}

async fn send_due(
    began: Instant,
    mut dues: UnboundedReceiver<u64>,
    wires: Vec<Connection>,
    plan: Plan,
    abnormal: Arc<AtomicU64>,
) -> Vec<Sample> {
    let samples: Rc<RefCell<Vec<Sample>>> = Rc::default();
    let mut sent = 0;
    while let Some(until) = dues.recv().await {
        for number in sent..until {
            let at = usize::try_from(number).expect("64 bits");
            let key = at % plan.bodies.len();
            let (wire, body) = (wires[at % wires.len()].clone(), plan.bodies[key].clone());
            let (samples, abnormal) = (Rc::clone(&samples), Arc::clone(&abnormal));
            let due = due(number, plan.rate);
            tokio::task::spawn_local(async move {
                let lag = began.elapsed().saturating_sub(due);
                let (outcome, by) = wire.send(body).await;
                let now = began.elapsed();
                let sample = Sample { due, lag, latency: now - due, key, outcome, by };
                if !sample.is_normal() {
                    abnormal.store(u64::try_from(now.as_micros()).expect("not that long"), Ordering::Relaxed);
                }
                samples.borrow_mut().push(sample);
            });
        }
        sent = until;
    }
    let everything = usize::try_from(sent).expect("64 bits");
    while samples.borrow().len() < everything {
        sleep(Duration::from_millis(1)).await;
    }
    samples.take()
}

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
