//! Unary path of `ShouldRateLimit`, from request bytes to response bytes.
//!
//! Implemented here rather than by tonic's server, whose path supports streams of any length, compression and any kind
//! of body, which took a tenth of the CPU time of a call. Callers see no difference, except that data after the first
//! message of a request is ignored.

use std::{future::poll_fn, mem, pin::Pin, sync::Arc, task::Poll, thread, time::Instant};

use bytes::{Buf as _, BytesMut};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    http::{Extensions, request::Parts},
};
use tonic::{Code, Status, body::Body, metadata::MetadataMap};

use super::{
    overload::{Overloaded, Permit},
    request_body::{MessageLimits, RequestBody},
    response_body::ResponseBody,
    service::{Call, UnaryService},
    shed_call::ShedCall,
};
use crate::service::{Answer, frame::PREFIX_BYTES, metrics, refused};

/// Path of the method.
pub(crate) const SHOULD_RATE_LIMIT_PATH: &str =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Header with the compression of the messages.
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// An admitted call.
pub(super) struct IncomingCall {
    headers: HeaderMap,
    extensions: Extensions,
    body: Incoming,
    permit: Permit,
    /// Whether the poll that read the call read resets too.
    may_be_reset: bool,
}

impl IncomingCall {
    pub(super) fn new(request: Request<Incoming>, permit: Permit, may_be_reset: bool) -> Self {
        let (Parts { headers, extensions, .. }, body) = request.into_parts();
        Self { headers, extensions, body, permit, may_be_reset }
    }
}

/// Answers an admitted call with `service`, if its message is within `limits`.
pub(super) fn respond<T: UnaryService>(
    service: Arc<T>,
    mut call: IncomingCall,
    limits: MessageLimits,
) -> impl Future<Output = Response<ResponseBody>> + Send {
    let MessageLimits { max_bytes, timeout } = limits;
    // Not an asynchronous function, whose future would have room for its arguments twice.
    async move {
        let mut latency =
            LatencyRecorder { since: call.permit.admitted_at, outcome: CallOutcome::Unrecorded };
        if call.may_be_reset {
            drop_if_reset().await;
        }
        let permit = &mut call.permit;
        if permit.begin() == Err(Overloaded) {
            latency.outcome = CallOutcome::Shed;
            return ShedCall::new(call.body, limits).await;
        }
        permit.annotate(&mut call.extensions);
        let mut body = RequestBody::new(call.body, timeout);
        let received = receive(&call.headers, &mut body, max_bytes, permit).await;
        latency.since = body.completed_at(permit.admitted_at);
        let result = match received {
            Ok(message) => {
                let metadata = MetadataMap::from_headers(call.headers);
                let mut answer = service.answer(Call { metadata, extensions: call.extensions, message });
                // Waiting for the store costs the worker nothing.
                poll_fn(|cx| {
                    let poll = Pin::new(&mut answer).poll(cx);
                    if poll.is_pending() {
                        permit.pause();
                    } else {
                        permit.resume();
                    }
                    poll
                })
                .await
            }
            Err(status) => {
                // A body breaks off when its caller resets the call.
                count(&status);
                Err(status)
            }
        };
        let response = result.map_or_else(|status| ResponseBody::wrap(status.into_http::<Body>()), encode);
        latency.outcome = CallOutcome::Recorded;
        response
    }
}

/// Counts a call without a whole message.
fn count(status: &Status) {
    match status.code() {
        Code::Cancelled => metrics::answered("cancelled"),
        Code::ResourceExhausted => metrics::answered("overloaded"),
        Code::OutOfRange => refused("max_message_bytes", None, status.message()),
        _ => refused("malformed", None, status.message()),
    }
}

/// Yields to hyper, which drops a call that its caller has reset, but looks only while the call is pending. The body of a
/// call that was reset with `CANCEL` does not fail: it ends, as if it were whole.
async fn drop_if_reset() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Records the call's latency on drop, whether it was answered or reset by the client.
struct LatencyRecorder {
    since: Instant,
    outcome: CallOutcome,
}

/// Whether a metric has recorded the outcome of the call.
enum CallOutcome {
    Recorded,
    Unrecorded,
    /// Rejected undecided; such calls are not part of the latencies.
    Shed,
}

impl Drop for LatencyRecorder {
    fn drop(&mut self) {
        if let CallOutcome::Shed = self.outcome {
            return;
        }
        if let CallOutcome::Unrecorded = self.outcome {
            metrics::answered(if thread::panicking() { "panic" } else { "cancelled" });
        }
        metrics::REQUEST_DURATION.observe_time(self.since.elapsed());
    }
}

fn encode(answer: Answer) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::message(answer.frame, answer.permits));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// Reads the request message.
async fn receive(
    headers: &HeaderMap,
    body: &mut RequestBody,
    max_bytes: usize,
    permit: &mut Permit,
) -> Result<Bytes, Status> {
    reject_compression(headers)?;
    let mut buffer = MessageBuffer::default();
    while let Some(frame) = body.next(permit, headers).await {
        if let Ok(data) = frame?.into_data() {
            buffer.push(data, max_bytes)?;
        }
        // Known without another poll.
        if body.is_end_stream() {
            break;
        }
    }
    buffer.into_message(max_bytes)
}

fn reject_compression(headers: &HeaderMap) -> Result<(), Status> {
    match headers.get(GRPC_ENCODING) {
        Some(encoding) if encoding != "identity" => {
            let encoding = encoding.to_str().unwrap_or("?");
            let text = format!("Content is compressed with `{encoding}` which isn't supported");
            let mut status = Status::unimplemented(text);
            status
                .metadata_mut()
                .insert("grpc-accept-encoding", tonic::metadata::MetadataValue::from_static("identity"));
            Err(status)
        }
        Some(_) | None => Ok(()),
    }
}

/// Buffer that assembles one length-prefixed message from the chunks of a body.
#[derive(Debug, Default)]
pub(super) struct MessageBuffer {
    /// First chunk, if it is the whole message, as nearly always.
    whole: Bytes,
    /// All chunks of another message: a chunk may be a small part of memory that it keeps.
    joined: BytesMut,
}

impl MessageBuffer {
    fn bytes(&self) -> &[u8] {
        if self.joined.is_empty() { &self.whole } else { &self.joined }
    }

    /// Appends a chunk; data after the message is discarded.
    pub(super) fn push(&mut self, chunk: Bytes, max_bytes: usize) -> Result<(), Status> {
        if self.bytes().is_empty() {
            self.whole = chunk;
            if !self.is_complete(max_bytes)? {
                self.joined.extend_from_slice(&mem::take(&mut self.whole));
            }
        } else if !self.is_complete(max_bytes)? {
            self.joined.extend_from_slice(&chunk);
        }
        // An invalid prefix is rejected immediately, before the rest arrives.
        self.message_end(max_bytes).map(drop)
    }

    fn is_complete(&self, max_bytes: usize) -> Result<bool, Status> {
        Ok(self.message_end(max_bytes)?.is_some_and(|end| self.bytes().len() >= end))
    }

    /// End of the message in the buffer, once its length is known.
    fn message_end(&self, max_bytes: usize) -> Result<Option<usize>, Status> {
        let Some(([flag, length @ ..], _)) = self.bytes().split_first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        match flag {
            0 => {}
            1 => {
                return Err(Status::internal(
                    "protocol error: received message with compressed-flag but no grpc-encoding was specified",
                ));
            }
            flag => {
                let text = format!(
                    "protocol error: received message with invalid compression flag: {flag} (valid flags are 0 and 1)"
                );
                return Err(Status::internal(text));
            }
        }
        let length = u32::from_be_bytes(*length) as usize;
        if length > max_bytes {
            let text = format!(
                "Error, decoded message length too large: found {length} bytes, the limit is: {max_bytes} bytes (--max-message-bytes)"
            );
            return Err(Status::out_of_range(text));
        }
        Ok(Some(length.saturating_add(PREFIX_BYTES)))
    }

    /// Returns the message without its prefix.
    pub(super) fn message(&self, max_bytes: usize) -> Result<&[u8], Status> {
        if self.bytes().is_empty() {
            return Err(Status::internal("Missing request message."));
        }
        let end = self.message_end(max_bytes)?;
        let message = end.and_then(|end| self.bytes().get(PREFIX_BYTES..end));
        message.ok_or_else(|| Status::internal("Unexpected EOF decoding stream."))
    }

    /// Takes the message without its prefix.
    fn into_message(self, max_bytes: usize) -> Result<Bytes, Status> {
        let end = self.message(max_bytes)?.len().saturating_add(PREFIX_BYTES);
        let mut bytes = if self.joined.is_empty() { self.whole } else { self.joined.freeze() };
        bytes.truncate(end);
        bytes.advance(PREFIX_BYTES);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assemble(chunks: &[&[u8]]) -> Result<Vec<u8>, Status> {
        let mut buffer = MessageBuffer::default();
        for chunk in chunks {
            buffer.push(Bytes::copy_from_slice(chunk), 4)?;
        }
        buffer.into_message(4).map(Vec::from)
    }

    #[test]
    fn a_message_may_arrive_in_any_chunks_and_data_after_it_is_discarded() {
        let whole = b"\0\0\0\0\x03abc\0\0\0\0\x01d";
        assert_eq!(assemble(&[whole]).expect("a message"), b"abc");
        for at in 0..whole.len() {
            let (head, tail) = whole.split_at(at);
            assert_eq!(assemble(&[head, b"", tail]).expect("a message"), b"abc", "cut at {at}");
        }
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(assemble(&bytes).expect("a message"), b"abc");
        assert_eq!(assemble(&[b"\0\0\0\0\0"]).expect("an empty message"), b"");
    }

    #[test]
    fn malformed_messages_are_rejected_with_the_codes_of_tonic() {
        let code = |chunks: &[&[u8]]| assemble(chunks).expect_err("is rejected").code();
        assert_eq!(code(&[]), Code::Internal);
        assert_eq!(code(&[b"\0\0\0\0\x03ab"]), Code::Internal);
        assert_eq!(code(&[b"\x01\0\0\0\x01a"]), Code::Internal);
        assert_eq!(code(&[b"\x02\0\0\0\x01a"]), Code::Internal);
        assert_eq!(code(&[b"\0\0\0\0\x05", b"abcde"]), Code::OutOfRange);
        // Rejected before the rest arrives.
        for started in [b"\0\0\0\0\x05", b"\x02\0\0\0\x01"] {
            assert!(MessageBuffer::default().push(Bytes::from_static(started), 4).is_err());
        }
    }

    #[test]
    fn compressed_requests_are_rejected_with_the_accepted_encoding() {
        let mut headers = HeaderMap::new();
        assert!(reject_compression(&headers).is_ok());
        headers.insert("grpc-encoding", HeaderValue::from_static("identity"));
        assert!(reject_compression(&headers).is_ok());
        headers.insert("grpc-encoding", HeaderValue::from_static("gzip"));
        let status = reject_compression(&headers).expect_err("is rejected");
        assert_eq!(status.code(), Code::Unimplemented);
        assert_eq!(status.metadata().get("grpc-accept-encoding").expect("present"), "identity");
    }
}
