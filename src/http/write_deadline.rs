//! Response body with a deadline.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

/// Maximum bytes of a frame.
const CHUNK_BYTES: usize = 64 * 1024;

/// A body that fails when it is polled after its deadline, so that a slow client does not keep the rest in memory. It is
/// handed out in small chunks, so that the deadline is checked often.
#[derive(Debug)]
pub(super) struct WriteDeadline<H> {
    body: Body,
    /// Data taken from the body and not handed out yet.
    rest: Bytes,
    deadline: Option<Instant>,
    _held: H,
}

impl<H> WriteDeadline<H> {
    /// Drops `held` once the whole body was handed out, or failed.
    pub(super) fn new(body: Body, deadline: Option<Instant>, held: H) -> Self {
        Self { body, rest: Bytes::new(), deadline, _held: held }
    }
}

impl<H: Unpin> HttpBody for WriteDeadline<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return Poll::Ready(other),
            }
        }
        if self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
            let late = io::Error::new(io::ErrorKind::TimedOut, "timed out sending the response");
            return Poll::Ready(Some(Err(axum::Error::new(late))));
        }
        let length = self.rest.len().min(CHUNK_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        hint.exact().map_or(hint, |exact| SizeHint::with_exact(exact.saturating_add(rest)))
    }
}
