//! Port of the service between regions.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::stream;
use hyper::Request;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    select,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinSet,
};
use tokio_rustls::server::TlsStream;
use tonic::{
    body::Body,
    transport::{Server, server::Connected},
};
use tower::util::MapRequestLayer;
use webpki::EndEntityCert;

use super::service::{Names, RegionsService};
use crate::{
    grpc::request_body::{MessageLimits, WholeMessages},
    net::{
        accept_limit::AcceptLimit,
        idle_connections::{ConnectionActivity, IdleConnections},
        metrics,
        tls::Tls,
        unfinished,
    },
    proto::tollgate::region::v1::regions_server::RegionsServer,
    settings::Port,
};

/// Maximum number of connections, some of each instance of each region, and of handshakes, of which a further one takes the
/// place of the longest.
const MAX_CONNECTIONS: usize = 1_024;

/// Time limit of a handshake, and of one message.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of messages of a connection in progress, and their maximum length in bytes.
const MAX_MESSAGES: u32 = 64;
const MAX_MESSAGE_BYTES: usize = 1 << 20;

const MESSAGE_LIMITS: MessageLimits =
    MessageLimits { max_bytes: MAX_MESSAGE_BYTES, timeout: MESSAGE_TIMEOUT };

/// Names of the certificate of a connection's client: DNS names and URIs.
#[derive(Clone, Debug)]
pub(super) struct PeerNames(pub(super) Names);

/// Connection whose client has a certificate of the CA.
struct PeerStream {
    stream: TlsStream<TcpStream>,
    names: PeerNames,
    /// Place among the connections, until it is closed.
    _place: OwnedSemaphorePermit,
}

/// Serves the port; completes only after a panic.
pub(super) async fn serve(listener: TcpListener, tls: Tls, service: RegionsService) {
    let (accepted, connections) = mpsc::channel(MAX_CONNECTIONS);
    let service = RegionsServer::new(service).max_decoding_message_size(MAX_MESSAGE_BYTES);
    let incoming = stream::unfold(connections, |mut connections: mpsc::Receiver<PeerStream>| async move {
        connections.recv().await.map(|connection| (Ok::<_, io::Error>(connection), connections))
    });
    let serving = Server::builder()
        .timeout(MESSAGE_TIMEOUT)
        .max_concurrent_streams(MAX_MESSAGES)
        .concurrency_limit_per_connection(MAX_MESSAGES as usize)
        .http2_keepalive_interval(Some(Duration::from_secs(20)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .layer(MapRequestLayer::new(|call: Request<Body>| {
            let headers = unfinished::bytes_of(call.headers());
            call.map(|body| Body::new(WholeMessages::new(body, Port::Region, MESSAGE_LIMITS, headers)))
        }))
        .add_service(service)
        .serve_with_incoming(incoming);
    select! {
        result = serving => {
            if let Err(error) = result {
                tracing::error!(%error, "service between regions ended");
            }
        }
        () = accept(listener, tls, accepted) => {}
    }
}

/// Accepts connections and performs their handshakes.
async fn accept(listener: TcpListener, tls: Tls, accepted: mpsc::Sender<PeerStream>) {
    let mut limit = AcceptLimit::new(Port::Region, MAX_CONNECTIONS);
    let idle = Arc::<IdleConnections>::default();
    let mut handshakes = JoinSet::new();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let connection = select! {
            biased;
            Some(_) = handshakes.join_next() => continue,
            connection = listener.accept() => connection,
        };
        match connection {
            Ok((stream, _)) if limit.admits_evicting(handshakes.len(), || idle.close_longest()) => {
                let handshake = ConnectionActivity::new(&idle);
                let (tls, accepted, places) = (tls.clone(), accepted.clone(), Arc::clone(&places));
                handshakes.spawn(async move {
                    let _ = stream.set_nodelay(true);
                    let stream = select! {
                        stream = tls.accept(stream, HANDSHAKE_TIMEOUT) => stream,
                        () = handshake.closed() => None,
                    };
                    let Some(stream) = stream else { return };
                    if let Ok(place) = places.try_acquire_owned() {
                        let names = PeerNames(names_of(&stream));
                        // Only a stopped server does not take it.
                        let _ = accepted.send(PeerStream { stream, names, _place: place }).await;
                    } else {
                        metrics::connection_refused(Port::Region.name());
                    }
                });
            }
            Ok(_) => {}
            Err(error) => _ = limit.accept_failed(&error, || idle.close_longest()).await,
        }
    }
}

/// Names of the client's certificate, which the handshake verified.
fn names_of(stream: &TlsStream<TcpStream>) -> Names {
    let (_, connection) = stream.get_ref();
    let certificate = connection.peer_certificates().and_then(<[_]>::first);
    let Some(certificate) = certificate.and_then(|der| EndEntityCert::try_from(der).ok()) else {
        return Names::default();
    };
    certificate.valid_dns_names().chain(certificate.valid_uri_names()).map(Box::from).collect()
}

impl Connected for PeerStream {
    type ConnectInfo = PeerNames;

    fn connect_info(&self) -> PeerNames {
        self.names.clone()
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
