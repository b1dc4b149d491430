//! Sends calls to the primary region.
//!
//! A call is sent at once, or with all others a few milliseconds after the last message. A call that cannot be sent is
//! answered at once, with an error that rules out a charge; one that was sent is never sent again.

#[cfg(test)]
mod tests;

use std::{convert::Infallible, error::Error, pin::pin, sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};
use tokio::{select, task::JoinSet};
use tollgate_proto::tollgate::region::v1::{DecideReply, DecideRequest, regions_client::RegionsClient};
use tollgate_runtime::{log_budget::LogBudget, redact::with_sources};
use tollgate_store::{StoreError, request::Verdicts};
use tonic::{Code, Response, Status, transport::Channel};

use super::breaker::{Attempt, Breaker};
use super::{PrimaryCall, PrimaryQueue, wire};
use crate::{Regions, metrics};

/// Shortest time from one message to the next.
const MESSAGE_INTERVAL: Duration = Duration::from_millis(5);

/// Maximum number of calls in a message, and of messages on their way. Beyond, calls wait in their queue.
pub(crate) const MAX_CALLS: usize = 256;
const MAX_MESSAGES: usize = 32;

/// Maximum number of messages, with those that have failed and may still have a late reply.
const MAX_AWAITED: usize = 128;

/// Interval between two lines in the log about a primary region that does not decide.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

static FAILURE_LOG: LogBudget = LogBudget::new(1, LOG_INTERVAL);

/// Sends the calls of the queue to the primary region. Never completes while there are senders.
pub(crate) async fn send_all(mut queue: PrimaryQueue, regions: Regions) -> Infallible {
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
                        .map(|call| wire::call_of(&call.request, call.deadline.duration_since(now)))
                        .collect(),
                };
                self.due = now + MESSAGE_INTERVAL;
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
        match self.has_room() {
            true => self.breaker.admit(now).ok_or(StoreError::BreakerOpen),
            false => Err(StoreError::Overloaded),
        }
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
        metrics::called(region, "not_sent", Duration::ZERO);
        call.answer(Err(error.clone()));
    }
}

/// Maximum length of a reply in bytes.
const MAX_REPLY_BYTES: usize = 1 << 20;

/// Time after which a message without a reply has failed, even if its callers wait for more or less.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for which a reply is awaited beyond that and the deadlines of its calls, to correct what was decided meanwhile.
const LATE_TIMEOUT: Duration = Duration::from_secs(2);

/// Results of the calls of a message.
type Results = Vec<Result<Verdicts, StoreError>>;

/// Progress of a message.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) attempt: Attempt,
    /// The region, and the error if there is no reply in time, or none at all.
    pub(super) failure: Option<(String, StoreError)>,
}

/// A message on its way.
pub(super) struct Message {
    pub(super) region: String,
    pub(super) calls: Vec<PrimaryCall>,
    pub(super) attempt: Attempt,
    /// Its place among the messages on their way, until there is progress.
    pub(super) place: Option<OwnedSemaphorePermit>,
    pub(super) progress: mpsc::Sender<Progress>,
}

impl Message {
    /// Sends the message, and answers its calls.
    pub(super) async fn send(self, channel: Channel, request: DecideRequest) {
        let mut client = RegionsClient::new(channel).max_decoding_message_size(MAX_REPLY_BYTES);
        self.exchange(client.decide(request), Instant::now()).await;
    }

    /// Awaits the reply to a message that began at this time, and answers the calls.
    async fn exchange(
        mut self,
        reply: impl Future<Output = Result<Response<DecideReply>, Status>>,
        began: Instant,
    ) {
        let due = began + REPLY_TIMEOUT;
        let last = self.calls.iter().map(|call| call.deadline).fold(due, Instant::max);
        let mut reply = pin!(reply);
        let replied = match timeout_at(due, &mut reply).await {
            // Also one that lay ready while this process was paused: the region does reply.
            Ok(replied) => {
                let replied = self.results(replied);
                // A region that declines replies nevertheless.
                let failed = replied.as_ref().err().filter(|error| !error.charged_nothing());
                self.progressed(failed.cloned()).await;
                replied
            }
            Err(_) => {
                self.progressed(Some(StoreError::Timeout(began.elapsed(), None))).await;
                match timeout_at(last + LATE_TIMEOUT, reply).await {
                    Ok(replied) => self.results(replied),
                    Err(_) => Err(StoreError::Timeout(began.elapsed(), None)),
                }
            }
        };
        let (time, now) = (began.elapsed(), Instant::now());
        let Self { region, calls, .. } = self;
        let results = match replied {
            Ok(results) => results,
            Err(error) => calls.iter().map(|_| Err(error.clone())).collect(),
        };
        for (call, result) in calls.into_iter().zip(results) {
            let label = match &result {
                Ok(_) if now > call.deadline => "late",
                Ok(_) => "decided",
                Err(error) if error.charged_nothing() => "declined",
                Err(_) => "failed",
            };
            metrics::called(&region, label, time);
            call.answer(result);
        }
    }

    /// Results of the calls.
    fn results(&self, replied: Result<Response<DecideReply>, Status>) -> Result<Results, StoreError> {
        let DecideReply { replies } = replied.map_err(|status| error_of(&status))?.into_inner();
        if replies.len() != self.calls.len() {
            return Err(StoreError::MalformedReply);
        }
        Ok(self
            .calls
            .iter()
            .zip(&replies)
            .map(|(call, reply)| wire::read_reply(&call.request, reply))
            .collect())
    }

    /// Reports progress, once, and leaves the place to another message.
    async fn progressed(&mut self, failed: Option<StoreError>) {
        self.place = None;
        let failure = failed.map(|error| (self.region.clone(), error));
        // An error means that the process ends.
        let _ = self.progress.send(Progress { attempt: self.attempt, failure }).await;
    }
}

/// The error of calls whose message failed. Only a status that the service returns before any decision rules out a charge.
fn error_of(status: &Status) -> StoreError {
    let text = format!("primary region: {}", with_sources(status));
    // Of the transport, not of the service: the call may have been decided.
    if Error::source(status).is_some() {
        return StoreError::Disconnected(text);
    }
    match status.code() {
        Code::InvalidArgument | Code::PermissionDenied | Code::ResourceExhausted | Code::Unimplemented => {
            StoreError::Declined(text)
        }
        _ => StoreError::Disconnected(text),
    }
}
