//! Response bodies, which hold the permits of a lease until they are written.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::Response;
use hyper::body::{Bytes, Frame, SizeHint};
use hyper::header::{HeaderMap, HeaderValue};
use tollgate_limiter::HeldPermits;
use tonic::{Status, body::Body};

use super::unread_responses::{PendingResponse, StallDetector};

/// Body of a response. If it names a lease, it holds the lease's permits until its last frame is taken for writing: a
/// caller that has reset the call by then drops the body unread, which releases them. For a caller that resets it later,
/// without having read it, see [`super::unread_responses`].
#[derive(Debug)]
pub struct ResponseBody {
    payload: Payload,
    permits: Option<UnwrittenPermits>,
    /// Dropped once the body is written.
    pending: Option<PendingResponse>,
}

/// Permits of a response that is not yet written; released on drop.
#[derive(Debug)]
struct UnwrittenPermits(HeldPermits);

impl Drop for UnwrittenPermits {
    fn drop(&mut self) {
        if !self.0.is_handed_over() {
            self.0.release();
        }
    }
}

#[derive(Debug)]
enum Payload {
    /// Body from a side service, or of an error.
    Other(Body),
    /// One message and the success trailers.
    Message(Bytes),
    SuccessTrailers,
    Done,
}

impl ResponseBody {
    /// Wraps the response of a side service, with the permits of the lease that it names, or an error.
    pub(super) fn wrap(mut response: Response<Body>) -> Response<Self> {
        let permits = response.extensions_mut().remove().map(UnwrittenPermits);
        response.map(|body| Self { payload: Payload::Other(body), permits, pending: None })
    }

    /// A framed message, with the permits of the lease that it names.
    pub(super) fn message(message: Bytes, permits: Option<HeldPermits>) -> Self {
        let permits = permits.map(UnwrittenPermits);
        Self { payload: Payload::Message(message), permits, pending: None }
    }

    /// Counts the response as pending until the client has read it.
    pub(super) fn track(&mut self, detector: &StallDetector) {
        self.pending = Some(detector.track());
    }

    /// Counts the response as pending if it names a lease.
    pub(super) fn track_lease(&mut self, detector: &StallDetector) {
        if self.permits.is_some() {
            self.track(detector);
        }
    }

    /// Notes that a frame is taken for writing.
    fn taken(&mut self, frame: Option<&Result<Frame<Bytes>, Status>>) {
        let Some(UnwrittenPermits(permits)) = &self.permits else { return };
        match frame {
            Some(Ok(frame)) => {
                if let (Some(message), Some(pending)) = (frame.data_ref(), &self.pending) {
                    pending.leases().add(message, permits);
                }
                if frame.is_trailers() {
                    permits.hand_over();
                }
            }
            Some(Err(_)) => {}
            None => permits.hand_over(),
        }
    }
}

impl Payload {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let (frame, rest) = match self {
            Self::Other(body) => return hyper::body::Body::poll_frame(Pin::new(body), cx),
            Self::Message(message) => (Frame::data(std::mem::take(message)), Self::SuccessTrailers),
            Self::SuccessTrailers => {
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
                (Frame::trailers(trailers), Self::Done)
            }
            Self::Done => return Poll::Ready(None),
        };
        *self = rest;
        Poll::Ready(Some(Ok(frame)))
    }
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(self.payload.poll_frame(cx));
        self.taken(frame.as_ref());
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.payload {
            Payload::Other(body) => body.is_end_stream(),
            Payload::Message(_) | Payload::SuccessTrailers => false,
            Payload::Done => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.payload {
            Payload::Other(body) => body.size_hint(),
            // Unknown on purpose, so that no content-length is sent; tonic sends none either.
            Payload::Message(_) | Payload::SuccessTrailers | Payload::Done => SizeHint::default(),
        }
    }
}
