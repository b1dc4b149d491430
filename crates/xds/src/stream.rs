//! One stream to a control plane.

use std::pin::{Pin, pin};
use std::{future::pending, time::Duration};

use bytes::{Buf as _, Bytes};
use futures_util::{Stream, StreamExt as _, TryFutureExt as _, stream};
use http::{HeaderMap, uri::PathAndQuery};
use tokio::sync::mpsc::{self, Sender};
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio::{select, task::spawn_blocking};
use tollgate_control::metrics;
use tollgate_proto::envoy::service::discovery::v3::DiscoveryRequest;
use tollgate_rules::config::Fingerprint;
use tollgate_runtime::redact::{self, with_sources};
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic::{Request, Response, Status, client::Grpc, metadata::MetadataMap, transport::Channel};
use tonic_prost::ProstEncoder;

use super::response::{self, PreviousResponses, ProcessedResponse, ResponseOutcome};
use super::{connect::Connection, pacing::ResponsePacing, session::Client};

/// gRPC method.
const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// Minimum time between two replies to the same content. Some control planes resend a rejected response at once, which would
/// loop as fast as both sides can.
const REPEATED_REPLY_DELAY: Duration = Duration::from_millis(500);
/// Queued requests for a control plane that does not read. Beyond these, only the latest is kept.
const MAX_QUEUED_REQUESTS: usize = 16;

/// Reason why a stream ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    /// An error, the end of the stream, or the shutdown of the process.
    #[error("{0}")]
    Failed(String),
    /// Not a single byte received, so possibly only a kernel accepted the connection.
    #[error("connected, but no response within {} s", .0.as_secs_f64())]
    NoResponse(Duration),
}

/// Runs a stream until it ends.
pub(super) async fn run(client: &mut Client, connection: Connection) -> StreamError {
    let (requests, incoming) = open(client, connection.channel.clone());
    let mut incoming = pin!(incoming);
    let timeout = client.settings.initial_fetch_timeout;
    let mut silence: Pin<&mut Sleep> = pin!(sleep(timeout));
    let mut is_silent = true;
    let (mut pacing, mut responses) = (ReplyPacing::default(), ResponsePacing::default());
    loop {
        if let Some(response) = responses.take_due(Instant::now()) {
            match process(client, response).await {
                Ok(processed) => pacing.reply(client, processed, &requests),
                Err(error) => return error,
            }
        }
        let message = select! {
            message = incoming.next() => message,
            () = &mut silence, if is_silent => {
                if !connection.has_received() {
                    return StreamError::NoResponse(timeout);
                }
                is_silent = false;
                client.status.connected();
                // If rules were rejected, the control plane has some for this node.
                if client.session.rejected.is_none() {
                    (client.rules.on_silence)();
                }
                continue;
            }
            () = pacing.send_due(&requests) => continue,
            () = responses.due() => continue,
        };
        match message {
            Some(Ok(response)) => {
                is_silent = false;
                client.status.received();
                if let Some(pause) = responses.add(response) {
                    sleep(pause).await;
                }
            }
            ended => {
                let ended = ended.and_then(Result::err).map(|status| describe(&status, client));
                let reason = ended.unwrap_or_else(|| "the control plane ended the stream".to_owned());
                return finish(client, responses, reason).await;
            }
        }
    }
}

/// Processes the response that is left when a stream ends for a reason.
async fn finish(client: &mut Client, mut responses: ResponsePacing, reason: String) -> StreamError {
    if let Some(response) = responses.take()
        && let Ok(ProcessedResponse { version, nonce, outcome }) = process(client, response).await
        && let ResponseOutcome::Accepted(fingerprint) = outcome
    {
        let _unsent = accept(client, version, nonce, Some(fingerprint));
    }
    StreamError::Failed(reason)
}

type Incoming = Result<Bytes, Status>;

/// Opens a stream and queues its first request.
fn open(
    client: &Client,
    channel: Channel,
) -> (Sender<DiscoveryRequest>, impl Stream<Item = Incoming> + use<>) {
    let (requests, outgoing) = mpsc::channel(MAX_QUEUED_REQUESTS);
    let _ = requests.try_send(client.session.opening());
    let outgoing = stream::unfold(outgoing, |mut outgoing| async {
        let request = outgoing.recv().await?;
        Some((request, outgoing))
    });
    let mut request = Request::new(outgoing);
    let headers: HeaderMap = client.settings.headers.iter().flatten().cloned().collect();
    *request.metadata_mut() = MetadataMap::from_headers(headers);
    let mut service = Grpc::new(channel).max_decoding_message_size(client.settings.max_message_bytes);
    // A server may send no headers before its first message, so the call is part of the stream.
    let call = async move {
        service.ready().await.map_err(|error| Status::unavailable(with_sources(&error)))?;
        service.streaming(request, PathAndQuery::from_static(METHOD), RawCodec).await
    };
    (requests, call.map_ok(Response::into_inner).try_flatten_stream())
}

/// Decodes a response and activates its rules, on a blocking thread.
async fn process(client: &Client, response: Bytes) -> Result<ProcessedResponse, StreamError> {
    let session = &client.session;
    let rejected = session.rejected.as_ref().map(|(fingerprint, _)| *fingerprint);
    let previous = PreviousResponses { accepted: session.accepted, rejected };
    let rules = client.rules.clone();
    let process = move || Ok(response::process(response::decode(response)?, previous, &rules));
    let processed = spawn_blocking(process).await.unwrap_or_else(|error| {
        let panicked = "processing a response panicked (a bug); see the log";
        Err(if error.is_panic() { panicked } else { "shutting down" }.to_owned())
    });
    processed.map_err(StreamError::Failed)
}

/// Delays repeated replies.
#[derive(Debug, Default)]
struct ReplyPacing {
    sent: Option<Instant>,
    /// The next request and its due time.
    delayed: Option<(Instant, DiscoveryRequest)>,
}

impl ReplyPacing {
    /// Sends the delayed request once it is due and the queue has room; never returns without one.
    async fn send_due(&mut self, requests: &Sender<DiscoveryRequest>) {
        match &self.delayed {
            None => pending().await,
            Some((at, _)) => sleep_until(*at).await,
        }
        // The stream has ended; its receiving half reports why.
        let Ok(room) = requests.reserve().await else { return pending().await };
        if let Some((_, request)) = self.delayed.take() {
            self.sent = Some(Instant::now());
            room.send(request);
        }
    }

    /// Replies to a response, at once if its content is new. Replaces a delayed reply.
    fn reply(
        &mut self,
        client: &mut Client,
        processed: ProcessedResponse,
        requests: &Sender<DiscoveryRequest>,
    ) {
        let ProcessedResponse { version, nonce, outcome } = processed;
        let now = Instant::now();
        let delayed =
            || self.sent.and_then(|sent| sent.checked_add(REPEATED_REPLY_DELAY)).unwrap_or(now).max(now);
        let (at, request) = match outcome {
            ResponseOutcome::Accepted(fingerprint) => {
                (now, accept(client, version, nonce, Some(fingerprint)))
            }
            ResponseOutcome::Unchanged => (delayed(), accept(client, version, nonce, None)),
            ResponseOutcome::Rejected(fingerprint, reason) => {
                let request = client.session.nack(nonce, &reason);
                client.session.rejected = Some((fingerprint, reason));
                (now, request)
            }
            ResponseOutcome::RejectedBefore => {
                let reason = client.session.rejected.as_ref().map_or("", |(_, reason)| reason);
                (delayed(), client.session.nack(nonce, reason))
            }
        };
        self.delayed = if at > now {
            Some((at, request))
        } else {
            requests.try_send(request).err().map(|unsent| (at, unsent.into_inner()))
        };
        if self.delayed.is_none() {
            self.sent = Some(now);
        }
    }
}

/// Records an accepted version and returns the ACK.
fn accept(client: &mut Client, version: String, nonce: String, new: Option<Fingerprint>) -> DiscoveryRequest {
    client.status.accepted(&version);
    client.session.accepted = new.or(client.session.accepted);
    if client.session.rejected.take().is_some() && new.is_none() {
        // The control plane is back at the active rules, which counts as a load.
        metrics::config_load(true);
        client.rules.status.update(|state| state.problem = None);
    }
    client.accepted.send_replace(true);
    client.session.ack(version, nonce)
}

/// An error status with its sources and, where one helps, the flag.
fn describe(status: &Status, client: &Client) -> String {
    let mut text = format!("{}: {}", status.code().description(), redact::bounded(status.message()));
    if let Some(source) = std::error::Error::source(status).map(with_sources)
        && !text.contains(&source)
    {
        let source = redact::bounded(&source);
        text = format!("{text}: {source}");
    }
    if status.code() == tonic::Code::OutOfRange {
        let max = client.settings.max_message_bytes;
        text = format!("{text}; --xds-max-message-bytes is {max}");
    }
    text
}

/// Encodes requests; returns responses as bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawCodec;

impl Codec for RawCodec {
    type Encode = DiscoveryRequest;
    type Decode = Bytes;
    type Encoder = ProstEncoder<DiscoveryRequest>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
