//! Sends calls to the primary region.
//!
//! A call is sent at once, or with all others a few milliseconds after the last message. A call that cannot be sent is
//! answered at once, with an error that rules out a charge; one that was sent is never sent again.

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::{
    select,
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::{Instant, timeout_at},
};
use tollgate_runtime::log_budget::LogBudget;
use tollgate_store::{
    StoreError,
    primary::{PrimaryCall, PrimaryQueue},
};

use super::{
    breaker::{Attempt, Breaker},
    exchange::{Message, Progress},
    wire,
};
use crate::{
    proto::tollgate::region::v1::DecideRequest,
    regions::{
        Regions,
        metrics::{self, CallResult},
    },
};

/// Shortest time from one message to the next.
const MESSAGE_INTERVAL: Duration = Duration::from_millis(5);

/// Maximum number of calls in a message, and of messages on their way. Beyond, calls wait in their queue.
pub(in crate::regions) const MAX_CALLS: usize = 256;
const MAX_MESSAGES: usize = 32;

/// Maximum number of messages, with those that have failed and may still have a late reply.
const MAX_AWAITED: usize = 128;

/// Interval between two lines in the log about a primary region that does not decide.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

static FAILURE_LOG: LogBudget = LogBudget::new(1, LOG_INTERVAL);

/// Sends the calls of the queue to the primary region. Never completes while there are senders.
pub(in crate::regions) async fn send_all(mut queue: PrimaryQueue, regions: Regions) -> Infallible {
    let (progress, mut progressed) = mpsc::channel(MAX_MESSAGES);
    let mut changes = regions.changes();
    let mut client = PrimaryClient {
        regions,
        progress,
        breaker: Breaker::default(),
        primary: None,
        due: Instant::now(),
        places: Arc::new(Semaphore::new(MAX_MESSAGES)),
        messages: JoinSet::new(),
    };
    loop {
        client.follow_table();
        let takes_calls = client.takes_calls(Instant::now());
        select! {
            biased;
            Some(progress) = progressed.recv() => client.record(progress),
            Some(_) = client.messages.join_next() => {}
            Ok(()) = changes.changed() => {}
            first = queue.recv(), if takes_calls => match first {
                Some(first) => {
                    let calls = batch(first, &mut queue, client.due).await;
                    client.send(calls);
                }
                // The process ends.
                None => std::future::pending().await,
            },
        }
    }
}

/// The first call, and those that arrive until `due`.
async fn batch(first: PrimaryCall, queue: &mut PrimaryQueue, due: Instant) -> Vec<PrimaryCall> {
    let mut calls = vec![first];
    while calls.len() < MAX_CALLS {
        match timeout_at(due, queue.recv()).await {
            Ok(Some(call)) => calls.push(call),
            Ok(None) | Err(_) => break,
        }
    }
    calls
}

struct PrimaryClient {
    regions: Regions,
    breaker: Breaker,
    /// The primary region, if it is another one: that of the breaker and of the places.
    primary: Option<String>,
    /// Time of the next message.
    due: Instant,
    /// Places of messages on their way.
    places: Arc<Semaphore>,
    /// Messages on their way or awaited, and where they report.
    messages: JoinSet<()>,
    progress: mpsc::Sender<Progress>,
}

impl PrimaryClient {
    /// Begins anew if the primary region is another one: messages to the former one do not hinder those to it.
    fn follow_table(&mut self) {
        let primary = self.regions.other_primary();
        if self.primary != primary {
            self.breaker.change_region();
            (self.primary, self.places) = (primary, Arc::new(Semaphore::new(MAX_MESSAGES)));
        }
    }

    /// Whether calls are taken from the queue: to be sent, or to be answered at once.
    fn takes_calls(&self, now: Instant) -> bool {
        self.primary.is_none() || self.breaker.refuses(now) || self.has_room()
    }

    fn has_room(&self) -> bool {
        self.places.available_permits() > 0 && self.messages.len() < MAX_AWAITED
    }

    /// Sends calls in one message, or answers them.
    fn send(&mut self, calls: Vec<PrimaryCall>) {
        self.follow_table();
        let Some(region) = self.primary.clone() else {
            let error = StoreError::Declined("the primary region is changing".to_owned());
            return calls.into_iter().for_each(|call| call.answer(Err(error.clone())));
        };
        let now = Instant::now();
        let (due, late): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| call.deadline > now);
        refuse(&region, late, &StoreError::QueueTimeout(Duration::ZERO));
        if due.is_empty() {
            return;
        }
        let channel = self.regions.channel(&region);
        let channel = channel.map_err(|error| StoreError::Unreachable(format!("region {region}: {error}")));
        match channel.and_then(|channel| Ok((channel, self.admit(now)?))) {
            Ok((channel, attempt)) => {
                let request = DecideRequest {
                    sender: Some(self.regions.announcement()),
                    calls: due
                        .iter()
                        .map(|call| {
                            wire::call_of(&call.request, call.deadline.saturating_duration_since(now))
                        })
                        .collect(),
                };
                self.due = now.checked_add(MESSAGE_INTERVAL).unwrap_or(now);
                let place = Arc::clone(&self.places).try_acquire_owned().ok();
                let progress = self.progress.clone();
                let message = Message { region, calls: due, attempt, place, progress };
                self.messages.spawn(message.send(channel, request));
            }
            Err(error) => refuse(&region, due, &error),
        }
    }

    /// Admits a message for which there is room.
    fn admit(&mut self, now: Instant) -> Result<Attempt, StoreError> {
        let has_room = self.has_room();
        let refusal = if has_room { StoreError::BreakerOpen } else { StoreError::Overloaded };
        let attempt = if has_room { self.breaker.admit(now) } else { None };
        attempt.ok_or(refusal)
    }

    /// Records the progress of a message.
    fn record(&mut self, Progress { attempt, failure }: Progress) {
        let Some((region, error)) = failure else { return self.breaker.succeeded(attempt) };
        let is_called = self.breaker.failed(attempt, Instant::now());
        if is_called && let Some(suppressed) = FAILURE_LOG.take() {
            let is_paused = self.breaker.is_open();
            tracing::warn!(%region, %error, is_paused, suppressed, "primary region does not decide in time");
        }
    }
}

/// Answers calls that are not sent.
fn refuse(region: &str, calls: Vec<PrimaryCall>, error: &StoreError) {
    for call in calls {
        metrics::called(region, CallResult::NotSent, Duration::ZERO);
        call.answer(Err(error.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use tokio::{net::TcpListener, time::timeout};
    use tokio_util::task::AbortOnDropHandle;
    use tollgate_core::{
        RecordId,
        algorithm::{Algorithm, Charging, Parameters, Policy},
        clock::Clock,
        descriptor::{Entry, Hits},
        quota::{Quota, Unit, Window},
    };
    use tollgate_limiter::OwnShares;
    use tollgate_store::{
        BackgroundQueue, MemoryStore, Store,
        key::CellKey,
        primary::{PrimaryCalls, PrimaryRole, PrimaryRouter},
        request::{Check, TagRequest},
    };
    use tonic::transport::Endpoint;

    use super::*;
    use crate::settings::RegionSettings;

    /// Regions of which another one is the primary region.
    fn regions(directory: &Path) -> Regions {
        let file = directory.join("regions.yaml");
        let text = "generation: 1\nprimary: eu\nregions:\n  us: {address: 'https://us:1'}\n  \
                    eu: {address: 'https://eu:1'}\n";
        fs::write(&file, text).expect("written");
        let settings = RegionSettings { name: "us".to_owned(), table: file, peers: None };
        Regions::load(&settings, OwnShares::default()).expect("valid")
    }

    fn request() -> TagRequest {
        let quota = Quota { limit: 5, window: Window::of(Unit::Year) };
        let policy = Policy::nearest(Algorithm::FixedWindow, quota, &Parameters::default());
        let check = Check::own(RecordId::alone(Algorithm::FixedWindow), policy, Hits::ONE);
        let key = CellKey::open("d", [Entry { key: "k", value: "v" }].into_iter()).at_primary("d");
        TagRequest::new(Charging::Independent, key, check)
    }

    #[tokio::test]
    async fn calls_do_not_wait_behind_messages_that_hang() {
        let directory = tempfile::tempdir().expect("a directory");
        let regions = regions(directory.path());
        // Accepts connections, and never replies.
        let hanging = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}", hanging.local_addr().expect("bound"));
        let channel = Endpoint::from_shared(address).expect("a URL").connect_lazy();
        regions.set_channel("eu", Some(channel));
        let (calls, queue) = PrimaryCalls::new();
        calls.set_role(PrimaryRole::Other);
        let own = Store::Memory(MemoryStore::new(100, Clock::System));
        let store = Store::PrimaryRouter(PrimaryRouter::new(own, calls, BackgroundQueue::default()));
        let _client = AbortOnDropHandle::new(tokio::spawn(send_all(queue, regions)));
        // Those that were sent hang for a minute, and so would those that are not sent.
        let (refused, mut was_refused) = mpsc::channel(1);
        let mut waiting = JoinSet::new();
        let is_refused = async {
            loop {
                let (store, refused) = (store.clone(), refused.clone());
                waiting.spawn(async move {
                    let deadline = Instant::now().checked_add(Duration::from_secs(60));
                    if store.decide(&[request()], deadline).await[0] == Err(StoreError::BreakerOpen) {
                        let _ = refused.send(()).await;
                    }
                });
                if timeout(MESSAGE_INTERVAL, was_refused.recv()).await.is_ok() {
                    return;
                }
            }
        };
        timeout(Duration::from_secs(30), is_refused).await.expect("a call is refused while others hang");
    }
}
