//! Busy time of the threads that serve: the part of it in a second is the utilization of a thread.
//!
//! The runtime measures it at each turn, so that nothing is added to a request. It is the time in which the thread does not
//! wait for events, whether the operating system ran it or another process.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeMetrics};
use tollgate_metrics::Computed;

pub(super) static BUSY_SECONDS: Computed<1> = Computed::counter(
    "tollgate_worker_busy_seconds_total",
    &["worker"],
    "Busy time of each worker thread and of the main thread, in seconds.",
    |[declared], page| {
        let times = times();
        if !times.is_empty() {
            page.begin(declared);
            times.iter().for_each(|(worker, busy)| page.sample(declared, &[worker], busy.as_secs_f64()));
        }
    },
);

/// Runtimes of the threads that serve.
static RUNTIMES: Mutex<Vec<Arc<Serving>>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Serving {
    worker: String,
    runtime: RuntimeMetrics,
}

/// A thread that serves, until this is dropped.
#[derive(Debug)]
pub(super) struct BusyTime(Arc<Serving>);

impl BusyTime {
    /// The thread of this runtime, by its name in metrics.
    pub(super) fn of(worker: &impl ToString, runtime: &Handle) -> Self {
        let serving = Arc::new(Serving { worker: worker.to_string(), runtime: runtime.metrics() });
        RUNTIMES.lock().push(Arc::clone(&serving));
        Self(serving)
    }
}

impl Drop for BusyTime {
    fn drop(&mut self) {
        RUNTIMES.lock().retain(|serving| !Arc::ptr_eq(serving, &self.0));
    }
}

/// Busy time by thread.
fn times() -> BTreeMap<String, Duration> {
    let mut times = BTreeMap::<String, Duration>::new();
    for serving in &*RUNTIMES.lock() {
        let workers = 0..serving.runtime.num_workers();
        let busy = workers.map(|worker| serving.runtime.worker_total_busy_duration(worker)).sum();
        let time = times.entry(serving.worker.clone()).or_default();
        *time = time.saturating_add(busy);
    }
    times
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Instant};

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_thread_is_busy_while_it_works_and_not_while_it_waits() {
        let name = "a_thread_of_this_test";
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let serving = BusyTime::of(&name, runtime.handle());
        let busy = || times().get(name).copied();
        assert_eq!(busy(), Some(Duration::ZERO));
        let work = Duration::from_millis(30);
        runtime.block_on(async {
            thread::sleep(work);
            // The time is taken when the thread waits.
            tokio::time::sleep(Duration::from_millis(1)).await;
        });
        let after_work = busy().expect("listed");
        assert!(after_work >= work, "{after_work:?}");
        // A thread that is suspended by the operating system counts as busy, so that it may take several attempts.
        let waits_mostly = || {
            let (before, began) = (busy(), Instant::now());
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
            let worked = busy().zip(before).map(|(after, before)| after.saturating_sub(before));
            worked.expect("listed") < began.elapsed() / 2
        };
        assert!((0..1_000).any(|_| waits_mostly()), "it is busy while it waits");
        drop(serving);
        assert_eq!(busy(), None);
    }
}
