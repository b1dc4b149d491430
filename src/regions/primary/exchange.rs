//! Exchange of one message with the primary region.

use std::{error::Error, pin::pin, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    time::{Instant, timeout_at},
};
use tollgate_runtime::error_text::with_sources;
use tollgate_store::{StoreError, primary::PrimaryCall, request::Verdicts};
use tonic::{Code, Response, Status, transport::Channel};

use super::{breaker::Attempt, wire};
use crate::{
    proto::tollgate::region::v1::{DecideReply, DecideRequest, regions_client::RegionsClient},
    regions::metrics::{self, CallResult},
};

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
        let due = began.checked_add(REPLY_TIMEOUT).unwrap_or(began);
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
                match timeout_at(last.checked_add(LATE_TIMEOUT).unwrap_or(last), reply).await {
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
            metrics::called(&region, CallResult::of(&result, now > call.deadline), time);
            call.answer(result);
        }
    }

    /// Results of the calls.
    fn results(&self, replied: Result<Response<DecideReply>, Status>) -> Result<Results, StoreError> {
        replies(&self.calls, replied.map_err(|status| error_of(&status))?.get_ref())
    }

    /// Reports progress, once, and leaves the place to another message.
    async fn progressed(&mut self, failed: Option<StoreError>) {
        self.place = None;
        let failure = failed.map(|error| (self.region.clone(), error));
        // An error means that the process ends.
        let _ = self.progress.send(Progress { attempt: self.attempt, failure }).await;
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
    use std::{future::pending, sync::Arc};

    use tokio::{sync::Semaphore, task::yield_now};

    use super::{super::breaker::Breaker, *};

    type Reply = Result<Response<DecideReply>, Status>;

    /// Progress of a message without calls that was sent before this time, and the number of free places then, of one.
    async fn progress_of(
        reply: impl Future<Output = Reply>,
        age: Duration,
    ) -> (Vec<Option<StoreError>>, usize) {
        let (progress, mut progressed) = mpsc::channel(8);
        let began = Instant::now().checked_sub(age).expect("the machine runs for longer");
        let attempt = Breaker::default().admit(began).expect("admitted");
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::clone(&places).try_acquire_owned().ok();
        let (region, calls) = ("eu".to_owned(), Vec::new());
        Message { region, calls, attempt, place, progress }.exchange(reply, began).await;
        let mut all = Vec::new();
        while let Some(Progress { failure, .. }) = progressed.recv().await {
            all.push(failure.map(|(_, error)| error));
        }
        (all, places.available_permits())
    }

    fn good() -> Reply {
        Ok(Response::new(DecideReply::default()))
    }

    #[tokio::test]
    async fn each_message_has_one_outcome() {
        let at_once = Duration::ZERO;
        assert_eq!(progress_of(async { good() }, at_once).await, (vec![None], 1));
        let declined = async { Err(Status::permission_denied("no")) };
        assert_eq!(progress_of(declined, at_once).await, (vec![None], 1));
        let (all, free) = progress_of(async { Err(Status::unavailable("no")) }, at_once).await;
        assert!(matches!(&all[..], [Some(StoreError::Disconnected(_))]) && free == 1, "{all:?}");
        let late = async {
            yield_now().await;
            good()
        };
        for (all, free) in [
            progress_of(late, REPLY_TIMEOUT * 30).await,
            progress_of(pending(), REPLY_TIMEOUT + LATE_TIMEOUT).await,
        ] {
            assert!(matches!(&all[..], [Some(StoreError::Timeout(..))]) && free == 1, "{all:?}");
        }
    }

    #[tokio::test]
    async fn a_reply_that_lay_ready_while_the_process_was_paused_is_recorded() {
        assert_eq!(progress_of(async { good() }, REPLY_TIMEOUT * 30).await, (vec![None], 1));
    }

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
