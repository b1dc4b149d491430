//! How a call's message arrives.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use hyper::body::{Body as _, Bytes, Frame, Incoming};
use tokio::time::{Sleep, sleep};
use tonic::Status;

use super::overload::Turn;

/// What may arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of a message.
    pub(crate) bytes: usize,
    /// How long it may take once some of it has to be waited for.
    pub(crate) time: Duration,
}

/// A call's body on its way. Nearly always it is all there with the headers, and no time is taken.
#[derive(Debug)]
pub(super) struct Arrival {
    body: Incoming,
    time: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Arrival {
    pub(super) const fn new(body: Incoming, time: Duration) -> Self {
        Self { body, time, deadline: None }
    }

    /// The next part, or nothing after the last one. While it is waited for, its call does not count as taken on: it
    /// costs the worker nothing, and a client that never sends the rest must not keep others out.
    pub(super) async fn next(&mut self, turn: &mut Turn) -> Option<Result<Frame<Bytes>, Status>> {
        let next = poll_fn(|cx| {
            if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
                return Poll::Ready(
                    frame.map(|frame| frame.map_err(|error| Status::from_error(error.into()))),
                );
            }
            turn.pause();
            let time = self.time;
            ready!(self.deadline.get_or_insert_with(|| Box::pin(sleep(time))).as_mut().poll(cx));
            Poll::Ready(Some(Err(Status::deadline_exceeded("the message did not come in time"))))
        });
        let next = next.await;
        turn.go_on();
        next
    }

    /// When the message was there, of a call that was taken on at a time.
    pub(super) fn ended_at(&self, begun_at: Instant) -> Instant {
        if self.deadline.is_some() { Instant::now() } else { begun_at }
    }
}

/// The body of a call to another service. It breaks when more of it is waited for than some time.
#[derive(Debug)]
pub(super) struct Punctual {
    body: Incoming,
    time: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Punctual {
    pub(super) const fn new(body: Incoming, time: Duration) -> Self {
        Self { body, time, deadline: None }
    }
}

impl hyper::body::Body for Punctual {
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
        let time = self.time;
        ready!(self.deadline.get_or_insert_with(|| Box::pin(sleep(time))).as_mut().poll(cx));
        Poll::Ready(Some(Err(Status::deadline_exceeded("the message did not come in time"))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
