//! HTTP/1 server of one port.
//!
//! A port at its maximum of connections closes for a new one the one that waits the longest for its client. So neither idle clients
//! nor slow ones fail a probe or keep others out.

mod requests;

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::{select, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;
use tollgate_runtime::panics::CatchUnwind;

use self::requests::RequestService;
use crate::net::accept::{self, AcceptLimit, ConnectionActivity, IdleConnections};
use crate::net::{Port, stall_timeout::StallTimeout, tls::Tls};

/// Maximum bytes of a request's head and of a buffered part of its body.
const BUFFER_BYTES: usize = 64 * 1024;

/// Limits of a port's connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Maximum number of open connections. A further one takes the place of the longest idle one, or is closed.
    connections: usize,
    /// Timeout of the TLS handshake, and of the first request's head.
    handshake: Duration,
    /// Timeout between a response and the head of the next request.
    idle: Duration,
    /// Maximum age: after it a connection accepts no more requests, so that clients whose certificate is no longer accepted
    /// are disconnected.
    max_age: Duration,
    /// Timeout for receiving a request's body and sending the response.
    request: Duration,
    /// Timeout of a write to a client that does not read.
    stall: Duration,
}

impl ConnectionLimits {
    /// The default limits, with this handshake timeout.
    pub const fn new(handshake: Duration) -> Self {
        Self {
            connections: 1024,
            handshake,
            idle: Duration::from_secs(75),
            max_age: Duration::from_secs(3600),
            request: Duration::from_secs(30),
            stall: Duration::from_secs(20),
        }
    }
}

/// A listening port.
#[derive(Debug)]
pub struct HttpPort {
    pub port: Port,
    listener: TcpListener,
    tls: Option<Tls>,
    limits: ConnectionLimits,
}

impl HttpPort {
    /// Binds the port. Clients that connect before it is served wait in the backlog.
    pub async fn bind(
        port: Port,
        address: SocketAddr,
        tls: Option<Tls>,
        limits: ConnectionLimits,
    ) -> io::Result<Self> {
        let listener = accept::listen(address).await?;
        Ok(Self { port, listener, tls, limits })
    }

    /// The bound address, with the port that the system chose for port 0.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is cancelled, then completes the requests in flight. Dropping the future aborts them.
    pub async fn serve(self, router: Router, stop: CancellationToken) {
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.idle.max(self.limits.handshake))
            .max_buf_size(BUFFER_BYTES);
        let (tls, limits) = (self.tls, self.limits);
        let idle = Arc::<IdleConnections>::default();
        let stopping = stop.clone();
        let connections =
            Arc::new(ConnectionHandler { http1, router, tls, limits, port: self.port, stop: stopping });
        let mut accept_limit = AcceptLimit::new(self.port, limits.connections);
        let mut open = JoinSet::new();
        loop {
            let accepted = select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = open.join_next() => continue,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) if accept_limit.admits_evicting(open.len(), || idle.close_longest()) => {
                    let activity = ConnectionActivity::new(&idle);
                    if open.len() >= limits.connections {
                        // The closed one ends as soon as it runs.
                        open.join_next().await;
                    }
                    open.spawn(CatchUnwind::new(Arc::clone(&connections).serve(stream, activity)));
                }
                Ok(_) => {}
                Err(error) => {
                    if accept_limit.accept_failed(&error, || idle.close_longest()).await {
                        open.join_next().await;
                    }
                }
            }
        }
        drop(self.listener);
        while open.join_next().await.is_some() {}
    }
}

/// Serves the connections of a port.
struct ConnectionHandler {
    http1: http1::Builder,
    router: Router,
    tls: Option<Tls>,
    limits: ConnectionLimits,
    port: Port,
    stop: CancellationToken,
}

impl ConnectionHandler {
    async fn serve(self: Arc<Self>, stream: TcpStream, activity: Arc<ConnectionActivity>) {
        select! {
            biased;
            () = self.serve_stream(stream, &activity) => {}
            // Nothing is in progress on it.
            () = activity.closed() => {}
        }
    }

    async fn serve_stream(&self, stream: TcpStream, activity: &Arc<ConnectionActivity>) {
        // A broken socket fails again on the first write.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return self.serve_http(stream, activity).await };
        let accepted = select! {
            accepted = tls.accept(stream, self.limits.handshake) => accepted,
            () = self.stop.cancelled() => None,
        };
        if let Some(stream) = accepted {
            Box::pin(self.serve_http(stream, activity)).await;
        }
    }

    async fn serve_http<I: AsyncRead + AsyncWrite + Unpin>(&self, io: I, activity: &Arc<ConnectionActivity>) {
        let first_request = CancellationToken::new();
        let requests = RequestService {
            router: self.router.clone(),
            timeout: self.limits.request,
            first_request: first_request.clone(),
            port: self.port,
            activity: Arc::clone(activity),
        };
        let io = TokioIo::new(StallTimeout::new(io, self.limits.stall, None));
        let mut connection = pin!(self.http1.serve_connection(io, requests));
        let ended = select! {
            biased;
            ended = connection.as_mut() => ended,
            Err(_) = timeout(self.limits.handshake, first_request.cancelled()) => return,
            _ = timeout(self.limits.max_age, self.stop.cancelled()) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection failed");
        }
    }
}

#[cfg(test)]
mod tests;
