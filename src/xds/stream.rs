//! One conversation with a control plane.

use std::{
    future::pending,
    pin::{Pin, pin},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryFutureExt as _, stream};
use http::{HeaderMap, uri::PathAndQuery};
use tokio::{
    select,
    sync::mpsc::{self, Sender},
    task::spawn_blocking,
    time::{Instant, Sleep, sleep, sleep_until},
};
use tonic::{Request, Response, Status, client::Grpc, metadata::MetadataMap, transport::Channel};

use super::{
    client::Client,
    connect::{Connection, in_full},
    push::{self, Judged, Known, Outcome, Undecodable},
    raw::Raw,
};
use crate::{config::Fingerprint, control::metrics, proto::envoy::service::discovery::v3::DiscoveryRequest};

/// What is called.
const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// Between two answers to the same content. Some control planes send what was refused again at once, and would do so as
/// fast as both sides can.
const PAUSE: Duration = Duration::from_millis(500);
/// Answers that wait for a control plane that does not read. Of those after them, the last one does.
const MOST_UNREAD: usize = 16;

/// Why a conversation ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    /// The control plane ended it, or the connection broke.
    #[error("{0}")]
    Failed(String),
    /// The control plane ended it in order.
    #[error("it ended the stream")]
    Ended,
    /// Nothing ever came, not even that somebody is there.
    #[error("it took the connection and has not said a word within {} s", .0.as_secs_f64())]
    Mute(Duration),
    /// What was sent has no nonce to answer to.
    #[error(transparent)]
    Undecodable(#[from] Undecodable),
    /// A defect of ours.
    #[error("what it sent broke tollgate; the log says where")]
    Broken,
    /// The process is about to end.
    #[error("the process stops")]
    Stopping,
}

/// What waits for its time to be sent.
type Delayed = Option<(Instant, DiscoveryRequest)>;

/// Talks until there is nobody to talk to.
pub(super) async fn converse(client: &mut Client, connection: Connection) -> StreamError {
    let (requests, incoming) = open(client, connection.channel.clone());
    let mut incoming = pin!(incoming);
    let patience = client.settings.initial_fetch_timeout;
    let mut silence: Pin<&mut Sleep> = pin!(sleep(patience));
    let mut is_silent = true;
    let mut pacing = Pacing::default();
    loop {
        let message = select! {
            message = incoming.next() => message,
            () = &mut silence, if is_silent => {
                if !connection.was_heard() {
                    return StreamError::Mute(patience);
                }
                is_silent = false;
                client.outage.ends();
                // There are some for this node where some were refused.
                if client.session.refused.is_none() {
                    (client.rules.has_none)();
                }
                continue;
            }
            () = pacing.send_due(&requests) => continue,
        };
        let response = match message {
            Some(Ok(response)) => response,
            Some(Err(status)) => return StreamError::Failed(reason_of(&status, client)),
            None => return StreamError::Ended,
        };
        is_silent = false;
        client.outage.heard();
        match judge(client, response).await {
            Ok(judged) => pacing.answer(client, judged, &requests),
            Err(error) => return error,
        }
    }
}

type Incoming = Result<Bytes, Status>;

/// Opens a stream, on which the first request is on its way.
fn open(
    client: &Client,
    channel: Channel,
) -> (Sender<DiscoveryRequest>, impl Stream<Item = Incoming> + use<>) {
    let (requests, outgoing) = mpsc::channel(MOST_UNREAD);
    let _ = requests.try_send(client.session.opening());
    let outgoing = stream::unfold(outgoing, |mut outgoing| async {
        let request = outgoing.recv().await?;
        Some((request, outgoing))
    });
    let mut request = Request::new(outgoing);
    let headers: HeaderMap = client.settings.headers.iter().cloned().collect();
    *request.metadata_mut() = MetadataMap::from_headers(headers);
    let mut service = Grpc::new(channel).max_decoding_message_size(client.settings.max_message_bytes);
    // Servers may say nothing at all before their first message, not even that there is a stream.
    let call = async move {
        service.ready().await.map_err(|error| Status::unavailable(in_full(&error)))?;
        service.streaming(request, PathAndQuery::from_static(METHOD), Raw).await
    };
    (requests, call.map_ok(Response::into_inner).try_flatten_stream())
}

/// What became of a response.
async fn judge(client: &Client, response: Bytes) -> Result<Judged, StreamError> {
    let session = &client.session;
    let refused = session.refused.as_ref().map(|(fingerprint, _)| *fingerprint);
    let known = Known { accepted: session.accepted, refused };
    let rules = client.rules.clone();
    let judged = spawn_blocking(move || Ok(push::judge(push::decoded(response)?, known, &rules))).await;
    judged.unwrap_or_else(|error| {
        Err(if error.is_panic() { StreamError::Broken } else { StreamError::Stopping })
    })
}

/// When answers are sent.
#[derive(Debug, Default)]
struct Pacing {
    sent: Option<Instant>,
    delayed: Delayed,
}

impl Pacing {
    /// Waits until something is due and there is room for it, and sends it; for ever when nothing waits.
    async fn send_due(&mut self, requests: &Sender<DiscoveryRequest>) {
        match &self.delayed {
            None => pending().await,
            Some((at, _)) => sleep_until(*at).await,
        }
        // Nobody to take it: the other half tells why.
        let Ok(room) = requests.reserve().await else { return pending().await };
        if let Some((_, request)) = self.delayed.take() {
            self.sent = Some(Instant::now());
            room.send(request);
        }
    }

    /// Answers a response: at once if it said something new. An answer that waits is overtaken by the next one.
    fn answer(&mut self, client: &mut Client, judged: Judged, requests: &Sender<DiscoveryRequest>) {
        let Judged { version, nonce, outcome } = judged;
        let now = Instant::now();
        let pause = || self.sent.and_then(|sent| sent.checked_add(PAUSE)).unwrap_or(now).max(now);
        let (at, request) = match outcome {
            Outcome::InForce(fingerprint) => (now, accept(client, version, nonce, Some(fingerprint))),
            Outcome::Unchanged => (pause(), accept(client, version, nonce, None)),
            Outcome::Refused(fingerprint, reason) => {
                let request = client.session.nack(nonce, &reason);
                client.session.refused = Some((fingerprint, reason));
                (now, request)
            }
            Outcome::RefusedBefore => {
                let reason = client.session.refused.as_ref().map_or("", |(_, reason)| reason);
                (pause(), client.session.nack(nonce, reason))
            }
        };
        self.delayed = match at > now {
            true => Some((at, request)),
            false => requests.try_send(request).err().map(|unsent| (at, unsent.into_inner())),
        };
        if self.delayed.is_none() {
            self.sent = Some(now);
        }
    }
}

/// Takes note of a good version, and says so.
fn accept(client: &mut Client, version: String, nonce: String, new: Option<Fingerprint>) -> DiscoveryRequest {
    client.outage.accepted(&version);
    client.session.accepted = new.or(client.session.accepted);
    if client.session.refused.take().is_some() && new.is_none() {
        // What is in force is what is wanted, as if it had been loaded again.
        metrics::config_load(true);
        client.rules.status.update(|state| state.problem = None);
    }
    client.told.send_replace(true);
    client.session.ack(version, nonce)
}

/// Why the control plane ended it, with what helps.
fn reason_of(status: &Status, client: &Client) -> String {
    let mut text = format!("{}: {}", status.code().description(), status.message());
    if let Some(source) = std::error::Error::source(status).map(in_full)
        && !text.contains(&source)
    {
        text = format!("{text}: {source}");
    }
    match status.code() == tonic::Code::OutOfRange {
        true => {
            let most = client.settings.max_message_bytes;
            format!("{text}; --xds-max-message-bytes is {most}")
        }
        false => text,
    }
}
