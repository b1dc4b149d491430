//! The one gRPC call that matters, from its request's bytes to its response's.
//!
//! Done here rather than by tonic's server, whose way is made for streams of any length, compression and bodies of
//! any kind, which took a tenth of what answering costs. What a caller sees is the same, but that what follows the
//! one message of a request is not looked at.

use std::{future::poll_fn, sync::Arc, thread, time::Instant};

use bytes::{BufMut as _, BytesMut};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderMap, HeaderValue},
};
use prost::Message as _;
use tonic::{Code, Status, body::Body, metadata::MetadataMap};

use super::{
    deadline::Hurried,
    overload::Turn,
    request_body::{Arrival, Limits},
    response_body::Delivery,
};
use crate::{
    metrics,
    proto::envoy::service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse, rate_limit_service_server::RateLimitService,
    },
};

/// What asks for it.
pub(crate) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Has `service` answer a call that was taken on, and whose message keeps to `limits`.
pub(super) async fn answer<T: RateLimitService>(
    service: Arc<T>,
    mut turn: Turn,
    request: Request<Incoming>,
    limits: Limits,
) -> Response<Delivery> {
    let (mut parts, body) = request.into_parts();
    if !turn.has_time {
        parts.extensions.insert(Hurried);
    }
    let mut told = Told { since: turn.begun_at, state: Telling::Abandoned };
    let mut body = Arrival::new(body, limits.time);
    let received = receive(&parts.headers, &mut body, limits.bytes, &mut turn).await;
    told.since = body.ended_at(turn.begun_at);
    let answer = match received {
        Ok(message) => {
            let metadata = MetadataMap::from_headers(parts.headers);
            let request = tonic::Request::from_parts(metadata, parts.extensions, message);
            // What waits for the store costs the worker nothing.
            let mut decided = service.should_rate_limit(request);
            poll_fn(|cx| {
                let poll = decided.as_mut().poll(cx);
                if poll.is_pending() {
                    turn.pause();
                } else {
                    turn.go_on();
                }
                poll
            })
            .await
        }
        Err(status) => {
            // A body that breaks off is one whose caller has gone.
            metrics::answered(if status.code() == Code::Cancelled { "cancelled" } else { "invalid" });
            Err(status)
        }
    };
    let answer = answer.map_or_else(|status| Delivery::of(status.into_http::<Body>()), response);
    told.state = Telling::Done;
    answer
}

/// Tells how long a call took when this is dropped: once it is answered, and when its caller resets it before that, which
/// drops the work on it.
struct Told {
    since: Instant,
    state: Telling,
}

enum Telling {
    /// What came of it was told.
    Done,
    /// Nobody has.
    Abandoned,
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Telling::Abandoned = self.state {
            metrics::answered(if thread::panicking() { "panic" } else { "cancelled" });
        }
        metrics::call_took(self.since.elapsed());
    }
}

fn response(answer: tonic::Response<RateLimitResponse>) -> Response<Delivery> {
    let (metadata, message, mut extensions) = answer.into_parts();
    let mut response = Response::new(Delivery::of_message(frame(&message), extensions.remove()));
    *response.headers_mut() = metadata.into_headers();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// The message as it is sent.
fn frame(message: &RateLimitResponse) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(length.saturating_add(PREFIX));
    bytes.put_u8(0);
    // Far from 4 GiB: a status for each descriptor of a request.
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut bytes);
    bytes.freeze()
}

/// Reads a request to its end.
async fn receive(
    headers: &HeaderMap,
    body: &mut Arrival,
    max_bytes: usize,
    turn: &mut Turn,
) -> Result<RateLimitRequest, Status> {
    refuse_compression(headers)?;
    let mut received = Received::default();
    while let Some(frame) = body.next(turn).await {
        if let Ok(data) = frame?.into_data() {
            received.add(data, max_bytes)?;
        }
    }
    RateLimitRequest::decode(received.message(max_bytes)?)
        .map_err(|error| Status::internal(error.to_string()))
}

fn refuse_compression(headers: &HeaderMap) -> Result<(), Status> {
    match headers.get("grpc-encoding") {
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

/// What came of a request's body.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// Nearly always all there is.
    first: Bytes,
    /// Everything, once there is more than one piece.
    joined: BytesMut,
}

impl Received {
    fn bytes(&self) -> &[u8] {
        if self.joined.is_empty() { &self.first } else { &self.joined }
    }

    /// Adds a piece; what comes after the message is let go.
    pub(super) fn add(&mut self, piece: Bytes, max_bytes: usize) -> Result<(), Status> {
        if self.bytes().is_empty() {
            self.first = piece;
        } else if self.message_end(max_bytes)?.is_none_or(|end| self.bytes().len() < end) {
            if self.joined.is_empty() {
                self.joined.extend_from_slice(&self.first);
            }
            self.joined.extend_from_slice(&piece);
        }
        // One that will be refused is at once, whatever else is sent.
        self.message_end(max_bytes).map(drop)
    }

    /// Where the message ends, once that is known.
    fn message_end(&self, max_bytes: usize) -> Result<Option<usize>, Status> {
        let Some(([flag, length @ ..], _)) = self.bytes().split_first_chunk::<PREFIX>() else {
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
                "Error, decoded message length too large: found {length} bytes, the limit is: {max_bytes} bytes"
            );
            return Err(Status::out_of_range(text));
        }
        Ok(Some(length.saturating_add(PREFIX)))
    }

    pub(super) fn message(&self, max_bytes: usize) -> Result<&[u8], Status> {
        if self.bytes().is_empty() {
            return Err(Status::internal("Missing request message."));
        }
        let end = self.message_end(max_bytes)?;
        let message = end.and_then(|end| self.bytes().get(PREFIX..end));
        message.ok_or_else(|| Status::internal("Unexpected EOF decoding stream."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(pieces: &[&[u8]]) -> Result<Vec<u8>, Status> {
        let mut received = Received::default();
        for piece in pieces {
            received.add(Bytes::copy_from_slice(piece), 4)?;
        }
        received.message(4).map(<[u8]>::to_vec)
    }

    #[test]
    fn a_message_may_come_in_any_pieces_and_what_follows_it_is_let_go() {
        let whole = b"\0\0\0\0\x03abc\0\0\0\0\x01d";
        assert_eq!(received(&[whole]).expect("a message"), b"abc");
        for at in 0..whole.len() {
            let (head, tail) = whole.split_at(at);
            assert_eq!(received(&[head, b"", tail]).expect("a message"), b"abc", "cut at {at}");
        }
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(received(&bytes).expect("a message"), b"abc");
        assert_eq!(received(&[b"\0\0\0\0\0"]).expect("an empty message"), b"");
    }

    #[test]
    fn what_is_no_message_is_refused_as_tonic_does() {
        let code = |pieces: &[&[u8]]| received(pieces).expect_err("is refused").code();
        assert_eq!(code(&[]), Code::Internal);
        assert_eq!(code(&[b"\0\0\0\0\x03ab"]), Code::Internal);
        assert_eq!(code(&[b"\x01\0\0\0\x01a"]), Code::Internal);
        assert_eq!(code(&[b"\x02\0\0\0\x01a"]), Code::Internal);
        assert_eq!(code(&[b"\0\0\0\0\x05", b"abcde"]), Code::OutOfRange);
        // Before more of it is sent.
        for begun in [b"\0\0\0\0\x05", b"\x02\0\0\0\x01"] {
            assert!(Received::default().add(Bytes::from_static(begun), 4).is_err());
        }
    }

    #[test]
    fn compressed_requests_are_refused_with_what_is_accepted() {
        let mut headers = HeaderMap::new();
        assert!(refuse_compression(&headers).is_ok());
        headers.insert("grpc-encoding", HeaderValue::from_static("identity"));
        assert!(refuse_compression(&headers).is_ok());
        headers.insert("grpc-encoding", HeaderValue::from_static("gzip"));
        let status = refuse_compression(&headers).expect_err("is refused");
        assert_eq!(status.code(), Code::Unimplemented);
        assert_eq!(status.metadata().get("grpc-accept-encoding").expect("told"), "identity");
    }
}
