//! Calls rejected by admission control.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::{
    Response,
    body::{Body as _, Incoming},
};
use tonic::{Status, body::Body};

use super::{
    request_body::{MessageLimits, TimedBody},
    response_body::ResponseBody,
};
use crate::service::metrics;

/// Response to a rejected call. Its message is discarded before, undecoded: HTTP/2 resets a stream whose response comes
/// first, and counts data that arrives after that as an offence, for a thousand of which it closes the connection.
pub(crate) struct ShedCall(TimedBody);

impl ShedCall {
    pub(super) fn new(body: Incoming, limits: MessageLimits) -> Self {
        Self(TimedBody::new(body, limits.timeout))
    }
}

impl Future for ShedCall {
    type Output = Response<ResponseBody>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        while let Some(Ok(_)) = ready!(Pin::new(&mut self.0).poll_frame(cx)) {}
        metrics::answered("overloaded");
        let status = Status::unavailable("overloaded; the deadline cannot be met");
        Poll::Ready(ResponseBody::wrap(status.into_http::<Body>()))
    }
}
