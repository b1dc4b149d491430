//! Outages of servers: no call waits longer than its timeout, few wait that long, and recovery is immediate.

mod overload;
mod recovery;
mod reports;

use super::*;
use crate::support::timing::keeps_to_async;

/// The store timeout of these tests: the default.
const TIMEOUT: Duration = Duration::from_millis(10);

/// The maximum latency of an immediately refused call on a busy machine.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(5);

/// A store with the usual time-out, once it is connected.
async fn brief(url: &str) -> RedisStore {
    let store = open(&RedisSettings { timeout: TIMEOUT, ..settings(url) });
    assert!(store.connected().await);
    store
}

/// A finished call: its start, its latency and its result.
#[derive(Debug)]
struct Done {
    begun: Instant,
    took: Duration,
    result: Result<(), StoreError>,
}

impl Done {
    fn is_open(&self) -> bool {
        self.result == Err(StoreError::BreakerOpen)
    }

    /// Whether the call returned without waiting.
    fn is_refused(&self) -> bool {
        matches!(self.result, Err(StoreError::BreakerOpen | StoreError::Unreachable(_)))
    }
}

async fn timed(store: &RedisStore, name: &str) -> Done {
    let call = one(name, Hits::ONE);
    let begun = Instant::now();
    let result = charge(store, &call).await.map(drop);
    Done { begun, took: begun.elapsed(), result }
}

/// Callers with counters of their own, which send sequential calls with a pause until stopped.
struct Load {
    stop: CancellationToken,
    callers: Vec<JoinHandle<Vec<Done>>>,
}

impl Load {
    fn start(store: &RedisStore, names: impl IntoIterator<Item = String>) -> Self {
        let stop = CancellationToken::new();
        let caller = |name: String| {
            let (store, stop) = (store.clone(), stop.clone());
            tokio::spawn(async move {
                let mut done = Vec::new();
                while !stop.is_cancelled() {
                    done.push(timed(&store, &name).await);
                    sleep(Duration::from_millis(2)).await;
                }
                done
            })
        };
        let callers = names.into_iter().map(caller).collect();
        Self { stop, callers }
    }

    async fn end(self) -> Vec<Done> {
        self.stop.cancel();
        let mut all = Vec::new();
        for caller in self.callers {
            all.extend(caller.await.expect("no panic"));
        }
        all.sort_by_key(|done| done.begun);
        all
    }
}

fn some_names() -> impl Iterator<Item = String> {
    (0..20).map(|number| format!("name{number}"))
}

/// Checks that calls which began between the two times were refused at once. A busy machine may stop some in the middle
/// of that.
fn assert_at_once(all: &[Done], from: Instant, to: Instant) {
    let during: Vec<_> = all.iter().filter(|done| (from..to).contains(&done.begun)).collect();
    assert!(during.len() > 20, "{}", during.len());
    for done in &during {
        assert!(done.is_refused(), "{:?} after it began: {done:?}", done.begun - from);
    }
    assert_most(&during, |done| done.took < REFUSAL_TIMEOUT);
}

/// The maximum wait on a busy machine.
const HEAL_TIMEOUT: Duration = Duration::from_secs(20);

/// Checks what is so but for what a busy machine does.
fn assert_most(all: &[&Done], is_so: impl Fn(&Done) -> bool) {
    let others: Vec<_> = all.iter().filter(|done| !is_so(done)).collect();
    assert!(others.len() <= all.len() / 4, "{} of {}, as {:?}", others.len(), all.len(), others[0]);
}
