//! Requests of a connection.

use std::{
    convert::Infallible,
    future::ready,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Method, StatusCode, header::CONNECTION},
    response::{IntoResponse as _, Response},
};
use hyper::{Request, body::Incoming};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tollgate_runtime::panics::{CatchUnwind, Panicked};
use tonic::codegen::Service as _;

use super::activity::{ConnectionActivity, RequestInProgress};
use crate::{
    http::{public::PROBE_PATHS, write_deadline::WriteDeadline},
    net::metrics,
    settings::Port,
};

/// Bound on the requests of a port that are in progress, probes aside.
#[derive(Clone, Debug)]
pub(super) struct RequestRoom {
    port: Port,
    permits: Arc<Semaphore>,
}

impl RequestRoom {
    pub(super) fn new(port: Port, requests: usize) -> Self {
        Self { port, permits: Arc::new(Semaphore::new(requests.min(Semaphore::MAX_PERMITS))) }
    }

    /// Takes room for a request until its response is complete; `None` at the bound.
    fn take(&self, request: &Request<Incoming>) -> Option<Room> {
        if *request.method() == Method::GET && PROBE_PATHS.contains(&request.uri().path()) {
            return Some(Room::Reserved);
        }
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok();
        if permit.is_none() {
            metrics::connection_refused(self.port.name());
        }
        permit.map(Room::Permit)
    }
}

/// Room of a request.
#[derive(Debug)]
enum Room {
    Reserved,
    Permit(#[expect(dead_code, reason = "held until the response is complete")] OwnedSemaphorePermit),
}

/// Held until the response is complete.
#[derive(Debug)]
pub(in crate::http) struct Held {
    _request: RequestInProgress,
    _room: Room,
}

/// Serves the requests of a connection.
pub(super) struct RequestService {
    /// Cancelled by the first request.
    pub(super) first_request: CancellationToken,
    pub(super) router: Router,
    /// Timeout of each request.
    pub(super) timeout: Duration,
    pub(super) room: RequestRoom,
    pub(super) activity: Arc<ConnectionActivity>,
}

type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

impl hyper::service::Service<Request<Incoming>> for RequestService {
    type Response = Response;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn call(&self, request: Request<Incoming>) -> ResponseFuture {
        self.first_request.cancel();
        // A connection that was just closed for another one has no use for a response.
        let room = self.activity.begin_request().zip(self.room.take(&request));
        let Some((in_progress, room)) = room else {
            return Box::pin(ready(Ok(closing(StatusCode::SERVICE_UNAVAILABLE))));
        };
        let held = Held { _request: in_progress, _room: room };
        let (response, limit) = (self.router.clone().call(request.map(Body::new)), self.timeout);
        let deadline = Instant::now().checked_add(limit);
        Box::pin(async move {
            let response = match timeout(limit, CatchUnwind::new(response)).await {
                Ok(Ok(response)) => response,
                Ok(Err(Panicked)) => Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response()),
                Err(_) => Ok(closing(StatusCode::REQUEST_TIMEOUT)),
            };
            response.map(|response| response.map(|body| Body::new(WriteDeadline::new(body, deadline, held))))
        })
    }
}

/// Response that closes the connection, as the rest of the request is not read.
fn closing(status: StatusCode) -> Response {
    let mut response = status.into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
