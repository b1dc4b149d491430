//! An answer on its way to its caller.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::{
    Response,
    body::{Bytes, Frame, SizeHint},
};
use tonic::{Status, body::Body};

use crate::limiter::Places;

/// The body of an answer. If it tells the name of a lease, it is what sees to the places until its last frame
/// is taken to be written: the caller may have reset the call by then, and then drops it half read.
#[derive(Debug)]
pub(super) struct Delivery {
    body: Body,
    places: Option<Places>,
}

impl Delivery {
    /// The response with its body, which takes the places over that come with it.
    pub(super) fn of(mut response: Response<Body>) -> Response<Self> {
        let places = response.extensions_mut().remove();
        response.map(|body| Self { body, places })
    }
}

impl hyper::body::Body for Delivery {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
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
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
