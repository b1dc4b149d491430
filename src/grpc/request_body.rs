//! Request bodies with a read timeout.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use hyper::body::{Body as _, Bytes, Frame, Incoming};
use tokio::time::{Sleep, sleep};
use tonic::Status;

use super::overload::Permit;

/// Status message of a body that arrives too slowly.
const TIMED_OUT: &str = "timed out reading the request message";

/// Bounds of a request message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageLimits {
    pub(crate) max_bytes: usize,
    /// Time to receive it, from the first read that has to wait.
    pub(crate) timeout: Duration,
}

/// Body of a `ShouldRateLimit` call. Nearly always it arrives with the headers, and no timer is started.
#[derive(Debug)]
pub(super) struct RequestBody {
    body: Incoming,
    timeout: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl RequestBody {
    pub(super) const fn new(body: Incoming, timeout: Duration) -> Self {
        Self { body, timeout, deadline: None }
    }

    /// Returns the next frame, or `None` after the last one. The permit is paused while waiting: the call costs the
    /// worker nothing, and a client that never sends the rest must not keep others out.
    pub(super) async fn next(&mut self, permit: &mut Permit) -> Option<Result<Frame<Bytes>, Status>> {
        let next = poll_fn(|cx| {
            if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
                return Poll::Ready(
                    frame.map(|frame| frame.map_err(|error| Status::from_error(error.into()))),
                );
            }
            permit.pause();
            let timeout = self.timeout;
            ready!(self.deadline.get_or_insert_with(|| Box::pin(sleep(timeout))).as_mut().poll(cx));
            Poll::Ready(Some(Err(Status::deadline_exceeded(TIMED_OUT))))
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
        if self.deadline.is_some() { Instant::now() } else { admitted_at }
    }
}

/// Body of a call to health or reflection. Fails when the next frame takes longer than the timeout.
#[derive(Debug)]
pub(super) struct TimedBody {
    body: Incoming,
    timeout: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl TimedBody {
    pub(super) const fn new(body: Incoming, timeout: Duration) -> Self {
        Self { body, timeout, deadline: None }
    }
}

impl hyper::body::Body for TimedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.deadline = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| Status::from_error(error.into()))));
        }
        let timeout = self.timeout;
        ready!(self.deadline.get_or_insert_with(|| Box::pin(sleep(timeout))).as_mut().poll(cx));
        Poll::Ready(Some(Err(Status::deadline_exceeded(TIMED_OUT))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
