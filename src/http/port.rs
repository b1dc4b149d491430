//! A port of HTTP/1, from its connections to their last answers.

use std::{
    convert::Infallible,
    future::pending,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, StatusCode, header::CONNECTION},
    response::{IntoResponse as _, Response},
};
use hyper::{Request, body::Incoming, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    select,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::codegen::Service as _;

use super::timely::Timely;
use crate::{
    net::{accept_limit::Gate, bind, stall_timeout::Guarded, tls::Tls},
    panics::{CatchUnwind, Panicked},
    settings::Port,
};

/// Bytes of a request's head, and of a body's part.
const BUFFER: usize = 64 * 1024;

/// What connections may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Open at once; one that comes beyond them is closed.
    connections: usize,
    /// For the TLS handshake, and for the head of the first request.
    handshake: Duration,
    /// From one request to the head of the next one.
    idle: Duration,
    /// After it a connection takes no more requests: whoever may no longer connect loses it.
    age: Duration,
    /// For a request's body and its answer.
    request: Duration,
    /// How long a client may take nothing of its answer.
    patience: Duration,
}

impl Limits {
    /// The usual ones.
    pub(crate) const fn new(handshake: Duration) -> Self {
        Self {
            connections: 1024,
            handshake,
            idle: Duration::from_secs(75),
            age: Duration::from_secs(3600),
            request: Duration::from_secs(30),
            patience: Duration::from_secs(20),
        }
    }
}

/// A port that is open, and not served yet.
#[derive(Debug)]
pub(crate) struct HttpPort {
    port: Port,
    listener: TcpListener,
    tls: Option<Tls>,
    limits: Limits,
}

impl HttpPort {
    /// Opens it. Whoever connects before it is served waits.
    pub(crate) async fn bind(
        port: Port,
        address: SocketAddr,
        tls: Option<Tls>,
        limits: Limits,
    ) -> io::Result<Self> {
        let listener = bind::listen(address).await?;
        Ok(Self { port, listener, tls, limits })
    }

    /// Where it listens, with the port that was picked.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is cancelled, then finishes the requests that have begun. Dropped, it cuts them.
    pub(crate) async fn serve(self, router: Router, stop: CancellationToken) {
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.idle.max(self.limits.handshake))
            .max_buf_size(BUFFER);
        let (tls, limits) = (self.tls, self.limits);
        let connections = Arc::new(Connections { http1, router, tls, limits, stop: stop.clone() });
        let mut gate = Gate::new(self.port, limits.connections);
        let mut open = JoinSet::new();
        loop {
            let accepted = select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = open.join_next() => continue,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) if gate.admits(open.len()) => {
                    open.spawn(CatchUnwind::new(Arc::clone(&connections).serve(stream)));
                }
                Ok(_) => {}
                Err(error) => gate.failed(&error).await,
            }
        }
        drop(self.listener);
        while open.join_next().await.is_some() {}
    }
}

/// How a port's connections are served.
struct Connections {
    http1: http1::Builder,
    router: Router,
    tls: Option<Tls>,
    limits: Limits,
    stop: CancellationToken,
}

impl Connections {
    async fn serve(self: Arc<Self>, stream: TcpStream) {
        // What fails here fails again when something is sent.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return self.speak(stream).await };
        let shaken = select! {
            shaken = tls.accept(stream, self.limits.handshake) => shaken,
            () = self.stop.cancelled() => None,
        };
        if let Some(stream) = shaken {
            Box::pin(self.speak(stream)).await;
        }
    }

    async fn speak<I: AsyncRead + AsyncWrite + Unpin>(&self, io: I) {
        let asked = CancellationToken::new();
        let requests =
            Requests { router: self.router.clone(), limit: self.limits.request, asked: asked.clone() };
        let io = TokioIo::new(Guarded::new(io, self.limits.patience));
        let mut connection = pin!(self.http1.serve_connection(io, requests));
        let ended = select! {
            biased;
            ended = connection.as_mut() => ended,
            () = self.nothing_asked(asked) => return,
            () = self.over() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!("a connection broke: {error}");
        }
    }
}

impl Connections {
    /// Ends when the first request does not come in time.
    async fn nothing_asked(&self, asked: CancellationToken) {
        if timeout(self.limits.handshake, asked.cancelled()).await.is_ok() {
            pending::<()>().await;
        }
    }

    /// Ends when no more requests are to be taken.
    async fn over(&self) {
        select! {
            () = self.stop.cancelled() => {}
            () = sleep(self.limits.age) => {}
        }
    }
}

/// The requests of a connection.
struct Requests {
    /// Cancelled once there was one.
    asked: CancellationToken,
    router: Router,
    /// How long each may take.
    limit: Duration,
}

type Answering = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

impl hyper::service::Service<Request<Incoming>> for Requests {
    type Response = Response;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        self.asked.cancel();
        let (answer, limit) = (self.router.clone().call(request.map(Body::new)), self.limit);
        let until = Instant::now().checked_add(limit);
        Box::pin(async move {
            let answer = match timeout(limit, CatchUnwind::new(answer)).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(Panicked)) => Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response()),
                Err(_) => Ok(too_late()),
            };
            match until {
                Some(until) => answer.map(|answer| answer.map(|body| Body::new(Timely::new(body, until)))),
                None => answer,
            }
        })
    }
}

/// What is left of the body is not waited for.
fn too_late() -> Response {
    let mut answer = StatusCode::REQUEST_TIMEOUT.into_response();
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

#[cfg(test)]
mod tests;
