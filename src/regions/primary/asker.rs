//! Sends calls to the primary region.
//!
//! A call is sent at once, or with all others a few milliseconds after the last message. A call that cannot be sent is
//! answered at once, with an error that rules out a charge; one that was sent is never sent again.

use std::{
    convert::Infallible,
    error::Error,
    pin::pin,
    time::{Duration, Instant},
};

use tokio::{
    select,
    sync::mpsc,
    task::JoinSet,
    time::{self, Instant as TokioInstant, timeout},
};
use tollgate_runtime::{error_text::with_sources, log_budget::LogBudget};
use tollgate_store::{
    StoreError,
    primary::{PrimaryCall, PrimaryQueue},
    request::Verdicts,
};
use tonic::{Code, Response, Status, transport::Channel};

use super::{breaker::Breaker, wire};
use crate::{
    proto::tollgate::region::v1::{DecideReply, DecideRequest, regions_client::RegionsClient},
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

/// Maximum length of a reply in bytes.
const MAX_REPLY_BYTES: usize = 1 << 20;

/// Time after which a message without a reply has failed, even if its callers wait for less.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for which a reply is awaited beyond that and the deadlines of its calls, to correct what was decided meanwhile.
const LATE_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval between two lines in the log about a primary region that does not decide.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Results of the calls of a message.
type Results = Vec<Result<Verdicts, StoreError>>;

static FAILURE_LOG: LogBudget = LogBudget::new(1, LOG_INTERVAL);

/// Progress of a message.
#[derive(Debug)]
enum Progress {
    /// There is a reply in time.
    InTime,
    /// There is no reply in time, or none at all.
    Failed { region: String, error: StoreError },
}

/// Sends the calls of the queue to the primary region. Never completes while there are senders.
pub(in crate::regions) async fn ask_all(mut queue: PrimaryQueue, regions: Regions) -> Infallible {
    let (progress, mut progressed) = mpsc::channel(MAX_MESSAGES);
    let mut asker = Asker {
        regions,
        progress,
        breaker: Breaker::default(),
        asked: None,
        due: TokioInstant::now(),
        messages: JoinSet::new(),
    };
    loop {
        let has_room = asker.messages.len() < MAX_MESSAGES;
        select! {
            biased;
            Some(progress) = progressed.recv() => asker.record(progress),
            Some(_) = asker.messages.join_next() => {}
            first = queue.recv(), if has_room => match first {
                Some(first) => {
                    let calls = batch(first, &mut queue, asker.due).await;
                    asker.send(calls);
                }
                // The process ends.
                None => std::future::pending().await,
            },
        }
    }
}

/// The first call, and those that arrive until `due`.
async fn batch(first: PrimaryCall, queue: &mut PrimaryQueue, due: TokioInstant) -> Vec<PrimaryCall> {
    let mut calls = vec![first];
    while calls.len() < MAX_CALLS {
        match time::timeout_at(due, queue.recv()).await {
            Ok(Some(call)) => calls.push(call),
            Ok(None) | Err(_) => break,
        }
    }
    calls
}

struct Asker {
    regions: Regions,
    breaker: Breaker,
    /// The region of the breaker.
    asked: Option<String>,
    /// Time of the next message.
    due: TokioInstant,
    /// Messages on their way, and where they report.
    messages: JoinSet<()>,
    progress: mpsc::Sender<Progress>,
}

impl Asker {
    /// Sends calls in one message, or answers them.
    fn send(&mut self, calls: Vec<PrimaryCall>) {
        let Some(region) = self.regions.asked() else {
            let error = StoreError::Declined("the primary region is changing".to_owned());
            return calls.into_iter().for_each(|call| call.answer(Err(error.clone())));
        };
        if self.asked.as_ref() != Some(&region) {
            (self.breaker, self.asked) = (Breaker::default(), Some(region.clone()));
        }
        let now = TokioInstant::now();
        let (due, late): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| call.deadline > now);
        refuse(&region, late, &StoreError::QueueTimeout(Duration::ZERO));
        if due.is_empty() {
            return;
        }
        let channel = match self.regions.channel(&region) {
            Ok(_) if !self.breaker.admits(Instant::now()) => Err(StoreError::BreakerOpen),
            Ok(channel) => Ok(channel),
            Err(error) => Err(StoreError::Unreachable(format!("region {region}: {error}"))),
        };
        match channel {
            Ok(channel) => {
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
                let message = Message { region, calls: due, progress: self.progress.clone() };
                self.messages.spawn(message.exchange(channel, request));
            }
            Err(error) => refuse(&region, due, &error),
        }
    }

    /// Records the progress of a message.
    fn record(&mut self, progress: Progress) {
        let Progress::Failed { region, error } = progress else { return self.breaker.succeeded() };
        self.breaker.failed(Instant::now());
        if let Some(suppressed) = FAILURE_LOG.take() {
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

/// A message on its way.
struct Message {
    region: String,
    calls: Vec<PrimaryCall>,
    progress: mpsc::Sender<Progress>,
}

impl Message {
    /// Sends the message, and answers its calls.
    async fn exchange(self, channel: Channel, request: DecideRequest) {
        let began = Instant::now();
        let now = TokioInstant::now();
        let least = now.checked_add(REPLY_TIMEOUT).unwrap_or(now);
        let deadline = self.calls.iter().map(|call| call.deadline).fold(least, TokioInstant::max);
        let mut client = RegionsClient::new(channel).max_decoding_message_size(MAX_REPLY_BYTES);
        let mut reply = pin!(client.decide(request));
        let replied = match time::timeout_at(deadline, &mut reply).await {
            Ok(replied) => self.results(replied),
            Err(_) => {
                self.failed(StoreError::Timeout(began.elapsed(), None)).await;
                match timeout(LATE_TIMEOUT, reply).await {
                    Ok(replied) => self.results(replied),
                    Err(_) => Err(StoreError::Timeout(began.elapsed(), None)),
                }
            }
        };
        let (time, now) = (began.elapsed(), TokioInstant::now());
        match &replied {
            // A late reply was recorded.
            _ if now > deadline => {}
            Err(error) if !error.charged_nothing() => self.failed(error.clone()).await,
            // A region that declines replies nevertheless.
            Ok(_) | Err(_) => _ = self.progress.send(Progress::InTime).await,
        }
        let Self { region, calls, .. } = self;
        let results = match replied {
            Ok(results) => results,
            Err(error) => calls.iter().map(|_| Err(error.clone())).collect(),
        };
        for (call, result) in calls.into_iter().zip(results) {
            metrics::called(&region, CallResult::of(&result, now > call.deadline), time);
            call.answer(result);
        }
    }

    /// Results of the calls.
    fn results(&self, replied: Result<Response<DecideReply>, Status>) -> Result<Results, StoreError> {
        replies(&self.calls, replied.map_err(|status| error_of(&status))?.get_ref())
    }

    async fn failed(&self, error: StoreError) {
        let failed = Progress::Failed { region: self.region.clone(), error };
        // An error means that the process ends.
        let _ = self.progress.send(failed).await;
    }
}

/// Results of the calls.
fn replies(calls: &[PrimaryCall], reply: &DecideReply) -> Result<Results, StoreError> {
    if reply.replies.len() != calls.len() {
        return Err(StoreError::MalformedReply);
    }
    Ok(calls.iter().zip(&reply.replies).map(|(call, reply)| wire::read_reply(&call.request, reply)).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_status_before_any_decision_rules_out_a_charge() {
        for code in 1..=16 {
            let error = error_of(&Status::new(Code::from(code), "text"));
            let is_certain = matches!(
                Code::from(code),
                Code::InvalidArgument
                    | Code::PermissionDenied
                    | Code::ResourceExhausted
                    | Code::Unimplemented
            );
            assert_eq!(error.charged_nothing(), is_certain, "{error}");
        }
    }
}
