//! Request bodies, whose bytes arrive in time and are counted while their message is not complete.

use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use std::{future::poll_fn, mem, pin::Pin};

use bytes::{Buf as _, BytesMut};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{HeaderMap, HeaderName};
use tokio::time::{Sleep, sleep};
use tonic::{Status, metadata::MetadataValue};

use super::overload::Permit;
use crate::net::Port;
use crate::net::unfinished::{self, Unfinished};
use crate::service::frame::PREFIX_BYTES;

/// Status message of a body that arrives too slowly.
const TIMED_OUT: &str = "timed out reading the request message";

/// Memory of a call without its headers and its message: of its stream and its future.
const CALL_BYTES: usize = 2 * 1024;

/// Buffer into which a side service reads messages.
const SIDE_BUFFER_BYTES: usize = 8 * 1024;

/// Bounds of a request message.
#[derive(Clone, Copy, Debug)]
pub struct MessageLimits {
    pub max_bytes: usize,
    /// Time to receive it, from the first read that has to wait.
    pub timeout: Duration,
}

/// A message that arrives. Nearly always it does so at once, and neither a timer is started nor its bytes counted.
#[derive(Debug)]
struct Arrival {
    timeout: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
    unfinished: Unfinished,
}

impl Arrival {
    /// A message that takes `bytes` before any of it arrives.
    const fn new(port: Port, timeout: Duration, bytes: usize) -> Self {
        Self { timeout, deadline: None, unfinished: Unfinished::new(port, bytes) }
    }

    /// Completes with the reason if the rest of the message can no longer be waited for.
    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        if let Err(error) = self.unfinished.wait() {
            return Poll::Ready(Status::resource_exhausted(error.to_string()));
        }
        let timeout = self.timeout;
        ready!(self.deadline.get_or_insert_with(|| Box::pin(sleep(timeout))).as_mut().poll(cx));
        Poll::Ready(Status::deadline_exceeded(TIMED_OUT))
    }
}

/// Body of a `ShouldRateLimit` call.
#[derive(Debug)]
pub(super) struct RequestBody {
    body: Incoming,
    arrival: Arrival,
}

impl RequestBody {
    pub(super) const fn new(body: Incoming, timeout: Duration) -> Self {
        Self { body, arrival: Arrival::new(Port::Grpc, timeout, CALL_BYTES) }
    }

    /// Returns the next frame, or `None` after the last one. The permit is paused while waiting: the call costs the
    /// worker nothing, and a client that never sends the rest must not keep others out.
    async fn next(
        &mut self,
        permit: &mut Permit,
        headers: &HeaderMap,
    ) -> Option<Result<Frame<Bytes>, Status>> {
        let Self { body, arrival } = self;
        let next = poll_fn(|cx| {
            if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
                return Poll::Ready(frame.map(|frame| {
                    let frame = frame.map_err(|error| Status::from_error(error.into()))?;
                    arrival.unfinished.add(frame.data_ref().map_or(0, Bytes::len));
                    Ok(frame)
                }));
            }
            permit.pause();
            if arrival.deadline.is_none() {
                arrival.unfinished.add(unfinished::bytes_of(headers));
            }
            arrival.poll_wait(cx).map(|status| Some(Err(status)))
        });
        let next = next.await;
        permit.resume();
        next
    }

    /// Reads the message.
    pub(super) async fn receive(
        &mut self,
        headers: &HeaderMap,
        max_bytes: usize,
        permit: &mut Permit,
    ) -> Result<Bytes, Status> {
        reject_compression(headers)?;
        let mut buffer = MessageBuffer::default();
        while let Some(frame) = self.next(permit, headers).await {
            if let Ok(data) = frame?.into_data() {
                buffer.push(data, max_bytes)?;
            }
            // Known without another poll.
            if self.body.is_end_stream() {
                break;
            }
        }
        buffer.into_message(max_bytes)
    }

    /// Time at which the message of a call admitted at `admitted_at` was complete.
    pub(super) fn completed_at(&self, admitted_at: Instant) -> Instant {
        if self.arrival.deadline.is_some() { Instant::now() } else { admitted_at }
    }
}

/// Header with the compression of the messages.
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Refuses a call whose message is compressed.
fn reject_compression(headers: &HeaderMap) -> Result<(), Status> {
    match headers.get(GRPC_ENCODING) {
        Some(encoding) if encoding != "identity" => {
            let encoding = encoding.to_str().unwrap_or("?");
            let text = format!("Content is compressed with `{encoding}` which isn't supported");
            let mut status = Status::unimplemented(text);
            status.metadata_mut().insert("grpc-accept-encoding", MetadataValue::from_static("identity"));
            Err(status)
        }
        Some(_) | None => Ok(()),
    }
}

/// Body of a call to a side service, which is handed over by whole messages: tonic allocates the length that a message
/// announces. Fails when one takes longer than the timeout.
#[derive(Debug)]
pub struct WholeMessages<B> {
    body: B,
    port: Port,
    limits: MessageLimits,
    arrival: Arrival,
    buffer: BytesMut,
}

impl<B> WholeMessages<B> {
    /// Body of a call whose headers take so much memory.
    pub fn new(body: B, port: Port, limits: MessageLimits, headers: usize) -> Self {
        let arrival = Arrival::new(port, limits.timeout, headers + SIDE_BUFFER_BYTES);
        Self { body, port, limits, arrival, buffer: BytesMut::new() }
    }

    /// Takes the first message with its prefix, or what there is of one that is too long.
    fn take_message(&mut self) -> Option<Frame<Bytes>> {
        let ([_, length @ ..], message) = self.buffer.split_first_chunk::<PREFIX_BYTES>()?;
        let length = u32::from_be_bytes(*length) as usize;
        if length > message.len() && length <= self.limits.max_bytes {
            return None;
        }
        let end = length.min(message.len()) + PREFIX_BYTES;
        self.arrival = Arrival::new(self.port, self.limits.timeout, SIDE_BUFFER_BYTES);
        Some(Frame::data(self.buffer.split_to(end).freeze()))
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for WholeMessages<B>
where
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if let Some(message) = self.take_message() {
                return Poll::Ready(Some(Ok(message)));
            }
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        self.arrival.unfinished.add(data.len());
                        self.buffer.extend_from_slice(&data);
                    }
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Some(Err(Status::from_error(error.into()))));
                }
                Poll::Ready(None) => {
                    let rest = self.buffer.split().freeze();
                    return Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest))));
                }
                Poll::Pending => return self.arrival.poll_wait(cx).map(|status| Some(Err(status))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.buffer.is_empty() && self.body.is_end_stream()
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
                "Error, decoded message length too large: found {length} bytes, the limit is: {max_bytes} bytes"
            );
            return Err(Status::out_of_range(text));
        }
        Ok(Some(length + PREFIX_BYTES))
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
        let end = self.message(max_bytes)?.len() + PREFIX_BYTES;
        let mut bytes = if self.joined.is_empty() { self.whole } else { self.joined.freeze() };
        bytes.truncate(end);
        bytes.advance(PREFIX_BYTES);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, convert::Infallible};

    use hyper::header::HeaderValue;
    use tonic::Code;

    use super::*;

    /// A body in chunks.
    struct Chunks(VecDeque<Bytes>);

    impl Body for Chunks {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|chunk| Ok(Frame::data(chunk))))
        }
    }

    /// The data frames of a body that arrives in these chunks.
    async fn handed_over(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let chunks = Chunks(chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk)).collect());
        let limits = MessageLimits { max_bytes: 4, timeout: Duration::from_secs(60) };
        let mut messages = WholeMessages::new(chunks, Port::Grpc, limits, 0);
        let mut frames = Vec::new();
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut messages).poll_frame(cx)).await {
            frames.push(frame.expect("no error").into_data().expect("data").to_vec());
        }
        frames
    }

    #[tokio::test]
    async fn messages_are_handed_over_whole() {
        let (first, second) = (&b"\0\0\0\0\x03abc"[..], &b"\0\0\0\0\0"[..]);
        let both = [first, second].concat();
        for cut in 0..=both.len() {
            let (head, tail) = both.split_at(cut);
            assert_eq!(handed_over(&[head, b"", tail]).await, [first, second], "cut at {cut}");
        }
        assert_eq!(handed_over(&both.chunks(1).collect::<Vec<_>>()).await, [first, second]);
        // Too long, at once; and one that breaks off, at the end.
        assert_eq!(handed_over(&[b"\0\0\0\0\x05a", b"b"]).await, [b"\0\0\0\0\x05a".to_vec(), b"b".to_vec()]);
        assert_eq!(handed_over(&[b"\0\0\0\0\x03", b"ab"]).await, [b"\0\0\0\0\x03ab"]);
    }

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
