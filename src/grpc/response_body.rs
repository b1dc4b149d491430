//! An answer on its way to its caller.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::{
    Response,
    body::{Bytes, Frame, SizeHint},
    header::{HeaderMap, HeaderValue},
};
use tonic::{Status, body::Body};

use super::stalled_reader::{Uptake, Waiting};
use crate::limiter::Places;

/// The body of an answer. If it tells the name of a lease, it is what sees to the places until its last frame
/// is taken to be written: the caller may have reset the call by then, and then drops it half read. What was taken and
/// waits for room in the caller's window counts as written.
#[derive(Debug)]
pub(crate) struct Delivery {
    content: Content,
    places: Option<Places>,
    /// Until it is taken.
    _waiting: Option<Waiting>,
}

#[derive(Debug)]
enum Content {
    /// What another service answers.
    Other(Body),
    /// One message, and that the call succeeded.
    Message(Bytes),
    /// That the call succeeded.
    Success,
    /// Nothing more.
    Sent,
}

impl Delivery {
    /// The response of another service.
    pub(super) fn of(response: Response<Body>) -> Response<Self> {
        response.map(|body| Self { content: Content::Other(body), places: None, _waiting: None })
    }

    /// A message with its prefix, which takes over the places that it tells the lease of.
    pub(super) const fn of_message(message: Bytes, places: Option<Places>) -> Self {
        Self { content: Content::Message(message), places, _waiting: None }
    }

    /// The same, counted until its client has taken it.
    pub(super) fn counted(self, uptake: &Uptake) -> Self {
        Self { _waiting: Some(uptake.wait()), ..self }
    }
}

impl Content {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let (frame, rest) = match self {
            Self::Other(body) => return hyper::body::Body::poll_frame(Pin::new(body), cx),
            Self::Message(message) => (Frame::data(std::mem::take(message)), Self::Success),
            Self::Success => (Frame::trailers(success()), Self::Sent),
            Self::Sent => return Poll::Ready(None),
        };
        *self = rest;
        Poll::Ready(Some(Ok(frame)))
    }
}

fn success() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
    trailers
}

impl hyper::body::Body for Delivery {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(self.content.poll_frame(cx));
        let is_last = match &frame {
            Some(Ok(frame)) => frame.is_trailers(),
            Some(Err(_)) => false,
            None => true,
        };
        if is_last && let Some(places) = self.places.take() {
            places.handed_over();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Other(body) => body.is_end_stream(),
            Content::Message(_) | Content::Success => false,
            Content::Sent => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Other(body) => body.size_hint(),
            // Left open, so that no length is told: tonic does not either.
            Content::Message(_) | Content::Success | Content::Sent => SizeHint::default(),
        }
    }
}
