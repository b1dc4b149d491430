//! A collector of OpenTelemetry, over gRPC or over HTTP.

use std::sync::{Arc, Mutex};
use std::{collections::VecDeque, net::SocketAddr};

use axum::body::{Body, to_bytes};
use axum::{Router, extract::Request as HttpRequest, response::Response as HttpResponse};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
    trace_service_server::{TraceService, TraceServiceServer},
};
use prost::Message as _;
use tokio::net::TcpListener;
use tonic::transport::{Identity, Server, ServerTlsConfig, server::TcpIncoming};
use tonic::{Request, Response, Status, metadata::MetadataMap};

use super::certificates::Authority;

/// Exports that a collector received, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collector(Arc<Mutex<Received>>);

#[derive(Debug, Default)]
struct Received {
    traces: Vec<ExportTraceServiceRequest>,
    /// Path and headers of each request over HTTP, or the metadata of a call.
    heads: Vec<(String, http::HeaderMap)>,
    /// Statuses of the next responses over HTTP, before those that accept.
    statuses: VecDeque<u16>,
}

impl Collector {
    /// A collector over gRPC, and its URL.
    pub(crate) async fn grpc() -> (Self, String) {
        let (received, listener, address) = Self::listening().await;
        received.serve_grpc(Server::builder(), listener);
        (received, format!("http://{address}"))
    }

    /// A collector over gRPC behind TLS, and its URL.
    pub(crate) async fn grpc_by_tls(authority: &Authority) -> (Self, String) {
        let (received, listener, address) = Self::listening().await;
        let pair = authority.sign(&["localhost"]);
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(pair.certificate, pair.key));
        received.serve_grpc(Server::builder().tls_config(tls).expect("a pair"), listener);
        (received, format!("https://localhost:{}", address.port()))
    }

    /// A collector over HTTP, and its URL.
    pub(crate) async fn http() -> (Self, String) {
        let (received, listener, address) = Self::listening().await;
        let of = received.clone();
        let router = Router::new().fallback(move |request| of.clone().answer(request));
        tokio::spawn(async move { axum::serve(listener, router).await });
        (received, format!("http://{address}"))
    }

    async fn listening() -> (Self, TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        (Self::default(), listener, address)
    }

    fn serve_grpc(&self, mut server: Server, listener: TcpListener) {
        let router = server.add_service(TraceServiceServer::new(self.clone()));
        tokio::spawn(router.serve_with_incoming(TcpIncoming::from(listener)));
    }

    /// Responds with these statuses to the next requests over HTTP, whose bodies are then not kept.
    pub(crate) fn respond(&self, statuses: impl IntoIterator<Item = u16>) {
        self.0.lock().expect("no panic").statuses.extend(statuses);
    }

    /// Every export of traces so far.
    pub(crate) fn traces(&self) -> Vec<ExportTraceServiceRequest> {
        self.0.lock().expect("no panic").traces.clone()
    }

    /// Paths and headers of all requests so far.
    pub(crate) fn heads(&self) -> Vec<(String, http::HeaderMap)> {
        self.0.lock().expect("no panic").heads.clone()
    }

    async fn answer(self, request: HttpRequest) -> HttpResponse {
        let (head, body) = request.into_parts();
        let body = to_bytes(body, 8 << 20).await.expect("a body");
        let status = {
            let mut received = self.0.lock().expect("no panic");
            received.heads.push((head.uri.path().to_owned(), head.headers));
            let status = received.statuses.pop_front().unwrap_or(200);
            if status == 200 {
                received.traces.push(ExportTraceServiceRequest::decode(body).expect("spans"));
            }
            status
        };
        let body = ExportTraceServiceResponse::default().encode_to_vec();
        HttpResponse::builder().status(status).body(Body::from(body)).expect("a response")
    }

    fn note(&self, metadata: MetadataMap) {
        self.0.lock().expect("no panic").heads.push((String::new(), metadata.into_headers()));
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.note(request.metadata().clone());
        self.0.lock().expect("no panic").traces.push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
