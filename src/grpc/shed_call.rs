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
    request_body::{MessageLimits, WholeMessages},
    response_body::ResponseBody,
};
use crate::{service::metrics, settings::Port};

/// Status message of a rejected call.
pub(super) const SHED_MESSAGE: &str = "overloaded; the deadline cannot be met";

/// Response to a rejected call. Its message is discarded before, undecoded: HTTP/2 resets a stream whose response comes
/// first, and counts data that arrives after that as an offence, for a thousand of which it closes the connection.
pub(crate) struct ShedCall(WholeMessages<Incoming>);

impl ShedCall {
    pub(super) fn new(body: Incoming, limits: MessageLimits) -> Self {
        Self(WholeMessages::new(body, Port::Grpc, limits, 0))
    }
}

impl Future for ShedCall {
    type Output = Response<ResponseBody>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        while let Some(Ok(_)) = ready!(Pin::new(&mut self.0).poll_frame(cx)) {}
        metrics::answered("overloaded");
        let status = Status::unavailable(SHED_MESSAGE);
        Poll::Ready(ResponseBody::wrap(status.into_http::<Body>()))
    }
}
