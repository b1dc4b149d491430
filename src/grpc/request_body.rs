//! Request bodies, whose bytes arrive in time and are counted while their message is not complete.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use hyper::{
    body::{Body, Bytes, Frame, Incoming},
    header::HeaderMap,
};
use tokio::time::{Sleep, sleep};
use tonic::Status;

use super::overload::Permit;
use crate::{
    net::unfinished::{self, Unfinished},
    service::frame::PREFIX_BYTES,
    settings::Port,
};

/// Status message of a body that arrives too slowly.
const TIMED_OUT: &str = "timed out reading the request message";

/// Memory of a call without its headers and its message: of its stream and its future.
const CALL_BYTES: usize = 2 * 1024;

/// Buffer into which a side service reads messages.
const SIDE_BUFFER_BYTES: usize = 8 * 1024;

/// Bounds of a request message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageLimits {
    pub(crate) max_bytes: usize,
    /// Time to receive it, from the first read that has to wait.
    pub(crate) timeout: Duration,
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
    pub(super) async fn next(
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

    /// Whether no further frame follows.
    pub(super) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Time at which the message of a call admitted at `admitted_at` was complete.
    pub(super) fn completed_at(&self, admitted_at: Instant) -> Instant {
        if self.arrival.deadline.is_some() { Instant::now() } else { admitted_at }
    }
}

/// Body of a call to a side service, which is handed over by whole messages: tonic allocates the length that a message
/// announces. Fails when one takes longer than the timeout.
#[derive(Debug)]
pub(crate) struct WholeMessages<B> {
    body: B,
    port: Port,
    limits: MessageLimits,
    arrival: Arrival,
    buffer: BytesMut,
}

impl<B> WholeMessages<B> {
    /// Body of a call whose headers take so much memory.
    pub(crate) fn new(body: B, port: Port, limits: MessageLimits, headers: usize) -> Self {
        let arrival = Arrival::new(port, limits.timeout, headers.saturating_add(SIDE_BUFFER_BYTES));
        Self { body, port, limits, arrival, buffer: BytesMut::new() }
    }

    /// Takes the first message with its prefix, or what there is of one that is too long.
    fn take_message(&mut self) -> Option<Frame<Bytes>> {
        let ([_, length @ ..], message) = self.buffer.split_first_chunk::<PREFIX_BYTES>()?;
        let length = u32::from_be_bytes(*length) as usize;
        if length > message.len() && length <= self.limits.max_bytes {
            return None;
        }
        let end = length.min(message.len()).saturating_add(PREFIX_BYTES);
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

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, convert::Infallible};

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
}
