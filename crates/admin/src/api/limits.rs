//! Limits of requests: the concurrency of expensive ones, with bodies and responses of megabytes or loads of rules, and the time
//! of calls to the control store.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{body::Bytes, http::StatusCode, response::Response};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::{task::spawn_blocking, time::timeout};
use tollgate_control::ControlError;

use super::Api;
use super::response::{ApiError, ApiResult, respond, to_vec};
use crate::caller::Caller;

/// Maximum number of large responses held at once.
const MAX_LARGE_RESPONSES: usize = 8;

/// Maximum number of large bodies held at once by reads and by writes. A body counts until everything parsed from it is
/// dropped.
const MAX_LARGE_BODIES: [usize; 2] = [6, 2];

/// Maximum number of rule loads, or work of that order, running at once for reads and for writes.
const MAX_RULE_LOADS: [usize; 2] = [2, 1];

/// Maximum number of scans of the active rules running at once for reads and for writes. They are cheaper than loads and
/// do not wait for them.
const MAX_RULE_SCANS: [usize; 2] = [2, 1];

/// Maximum time that a request waits for a permit.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);

/// Permit for expensive work; released on drop.
pub(super) type ApiPermit = OwnedSemaphorePermit;

/// The permits that a request draws from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane<'c> {
    /// Shared by all reads. One caller's rule loads run one after another.
    Read(&'c Caller),
    /// Shared by all writes, which never wait for reads.
    Write,
}

/// Semaphores of expensive work.
#[derive(Debug)]
pub(super) struct ApiLimits {
    large_responses: Arc<Semaphore>,
    large_bodies: [Arc<Semaphore>; 2],
    rule_loads: [Arc<Semaphore>; 2],
    rule_scans: [Arc<Semaphore>; 2],
    /// One permit for each caller that loads rules.
    caller_loads: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

impl Default for ApiLimits {
    fn default() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self {
            large_responses: semaphore(MAX_LARGE_RESPONSES),
            large_bodies: MAX_LARGE_BODIES.map(semaphore),
            rule_loads: MAX_RULE_LOADS.map(semaphore),
            rule_scans: MAX_RULE_SCANS.map(semaphore),
            caller_loads: Mutex::default(),
        }
    }
}

impl ApiLimits {
    /// Permit for holding a large response.
    pub(super) async fn large_response(&self) -> Result<ApiPermit, ApiError> {
        acquire(&self.large_responses).await
    }

    /// Permit for holding a large body, or anything parsed from it.
    pub(super) async fn large_body(&self, lane: Lane<'_>) -> Result<ApiPermit, ApiError> {
        acquire(of_lane(&self.large_bodies, lane)).await
    }

    /// Loads rules, or does work of that order, on a blocking thread.
    pub(super) async fn load<T: Send + 'static>(
        &self,
        lane: Lane<'_>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let caller_permit = match lane {
            Lane::Read(caller) => Some(acquire(&self.caller_loads(caller)).await?),
            Lane::Write => None,
        };
        let permit = acquire(of_lane(&self.rule_loads, lane)).await?;
        run((caller_permit, permit), work).await
    }

    /// Scans the active rules on a blocking thread.
    pub(super) async fn scan<T: Send + 'static>(
        &self,
        lane: Lane<'_>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        run(acquire(of_lane(&self.rule_scans, lane)).await?, work).await
    }

    fn caller_loads(&self, caller: &Caller) -> Arc<Semaphore> {
        let mut loads = self.caller_loads.lock();
        // Removes semaphores without holders or waiters.
        loads.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        let semaphore = loads.entry(Arc::clone(&caller.name)).or_insert_with(|| Arc::new(Semaphore::new(1)));
        Arc::clone(semaphore)
    }
}

/// The semaphore of a lane, of those for reads and for writes.
const fn of_lane<'s>([read, write]: &'s [Arc<Semaphore>; 2], lane: Lane<'_>) -> &'s Arc<Semaphore> {
    match lane {
        Lane::Read(_) => read,
        Lane::Write => write,
    }
}

/// Runs work on a blocking thread. It runs to its end and holds its permits until then, even if the request is cancelled.
async fn run<T: Send + 'static>(
    permits: impl Send + 'static,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let task = spawn_blocking(move || {
        let done = work();
        drop(permits);
        done
    });
    // The only error is a panic, which is logged.
    task.await.map_err(|_| ApiError::Internal)
}

async fn acquire(semaphore: &Arc<Semaphore>) -> Result<ApiPermit, ApiError> {
    match timeout(QUEUE_TIMEOUT, Arc::clone(semaphore).acquire_owned()).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(_)) | Err(_) => Err(ApiError::Busy("too many concurrent expensive requests; retry shortly")),
    }
}

/// A large body that holds its permit until it is sent or dropped: clients that do not read keep few of them in memory.
struct LargeBody {
    text: Vec<u8>,
    _permit: ApiPermit,
}

impl AsRef<[u8]> for LargeBody {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// A 200 response of a large value, which is made and serialised on a blocking thread and holds `permit` until it is sent.
pub(super) async fn large<T: Serialize>(
    api: &Api,
    lane: Lane<'_>,
    permit: ApiPermit,
    make: impl FnOnce() -> T + Send + 'static,
) -> ApiResult {
    let text = api.limits.scan(lane, move || to_vec(&make())).await??;
    Ok(large_text(text, permit))
}

/// A 200 response of serialised JSON, which holds `permit` until it is sent.
pub(super) fn large_text(text: Vec<u8>, permit: ApiPermit) -> Response {
    respond(StatusCode::OK, Bytes::from_owner(LargeBody { text, _permit: permit }))
}

/// Timeout of a read from the control store: a page is answered within a second, also during an outage.
const READ_TIMEOUT: Duration = Duration::from_millis(800);

/// Timeout of a write to it: longer, as its outcome is unknown after a timeout.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Awaits a read from the control store.
pub(super) async fn read<T>(call: impl Future<Output = Result<T, ControlError>>) -> Result<T, ControlError> {
    within(READ_TIMEOUT, call).await
}

/// Awaits a write to the control store.
pub(super) async fn write<T>(call: impl Future<Output = Result<T, ControlError>>) -> Result<T, ControlError> {
    within(WRITE_TIMEOUT, call).await
}

async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, ControlError>>,
) -> Result<T, ControlError> {
    let late = |_| Err(ControlError::Unavailable(format!("no response within {limit:?}")));
    timeout(limit, call).await.unwrap_or_else(late)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use crate::caller::Role;

    use super::*;

    fn viewer(name: &str) -> Caller {
        Caller { name: name.into(), role: Role::Viewer }
    }

    #[tokio::test]
    async fn writes_do_not_wait_for_reads() {
        let limits = Arc::new(ApiLimits::default());
        let (release, ends): (Vec<_>, Vec<_>) = (0..4).map(|_| mpsc::channel::<()>()).unzip();
        let (begins, started) = mpsc::channel();
        // Two of each caller: more than there are permits, and more than each caller may have.
        let reads: Vec<_> = ends.into_iter().zip(["ann", "ann", "bob", "bob"]).collect();
        for (end, name) in reads {
            let (limits, begins) = (Arc::clone(&limits), begins.clone());
            tokio::spawn(async move {
                let work = move || {
                    begins.send(name).expect("received");
                    end.recv()
                };
                limits.load(Lane::Read(&viewer(name)), work).await
            });
        }
        let mut first = Vec::new();
        while first.len() < 2 {
            tokio::task::yield_now().await;
            first.extend(started.try_recv());
        }
        first.sort_unstable();
        assert_eq!(first, ["ann", "bob"], "each caller has one permit");
        let bodies =
            (0..MAX_LARGE_BODIES[0]).map(|_| Arc::clone(&limits.large_bodies[0]).try_acquire_owned());
        let _held: Vec<ApiPermit> = bodies.map(|permit| permit.expect("free")).collect();
        assert!(limits.large_body(Lane::Write).await.is_ok());
        assert_eq!(limits.load(Lane::Write, || 7).await.ok(), Some(7));
        assert!(started.try_recv().is_err(), "the other loads still wait");
        drop(release);
        while first.len() < 4 {
            tokio::task::yield_now().await;
            first.extend(started.try_recv());
        }
    }
}
