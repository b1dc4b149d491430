//! An answer that has to be taken in time.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

/// Bytes that are handed over at a time.
const PIECE: usize = 64 * 1024;

/// A body that breaks when it is asked for more of itself after a time: what a client has not taken by then is not kept
/// for it. Asked in small pieces, so that this shows.
#[derive(Debug)]
pub(super) struct Timely {
    body: Body,
    /// Taken from it, and not handed over.
    rest: Bytes,
    until: Instant,
}

impl Timely {
    pub(super) fn new(body: Body, until: Instant) -> Self {
        Self { body, rest: Bytes::new(), until }
    }
}

impl HttpBody for Timely {
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
        if Instant::now() > self.until {
            let late = io::Error::new(io::ErrorKind::TimedOut, "the answer was not taken in time");
            return Poll::Ready(Some(Err(axum::Error::new(late))));
        }
        let length = self.rest.len().min(PIECE);
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
