//! A control plane that responds like go-control-plane, and misbehaves as tests request.

use std::sync::{Mutex, atomic::AtomicUsize};
use std::{net::SocketAddr, pin::Pin};

use futures_util::{Stream, StreamExt as _, stream};
use prost::Message as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::{net::TcpListener, runtime::Builder, select};
use tollgate::proto::envoy::service::discovery::v3::{
    DiscoveryRequest, DiscoveryResponse,
    aggregated_discovery_service_server::{AggregatedDiscoveryService, AggregatedDiscoveryServiceServer},
};
use tonic::transport::{Server, ServerTlsConfig, server::TcpIncoming};
use tonic::{Request, Response, Status, Streaming, async_trait, metadata::MetadataMap};

use super::*;

pub(crate) const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// The handling of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Sends what there is, and what comes.
    Serves,
    /// Ends each stream at once.
    Closes,
    /// Ends each stream with an error of this text.
    Fails(&'static str),
    /// Sends this many versions without awaiting replies; each allows its number of requests, and the last none.
    Floods(u32),
}

struct Shared {
    manner: Manner,
    current: watch::Sender<Option<DiscoveryResponse>>,
    requests: Mutex<Vec<DiscoveryRequest>>,
    headers: Mutex<Vec<MetadataMap>>,
    nonces: AtomicUsize,
}

/// A control plane on a port of its own; it ends with the test.
pub(crate) struct ControlPlane {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ControlPlane {
    pub(crate) fn start() -> Self {
        Self::start_as(free_port(), Manner::Serves, None)
    }

    /// Serves by TLS, and wants to see certificates.
    pub(super) fn start_tls(port: u16, shown: &Pair, clients: &Authority) -> Self {
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(&shown.certificate, &shown.key))
            .client_ca_root(Certificate::from_pem(clients.pem()));
        Self::start_as(port, Manner::Serves, Some(tls))
    }

    pub(crate) fn start_as(port: u16, manner: Manner, tls: Option<ServerTlsConfig>) -> Self {
        let shared = Arc::new(Shared {
            manner,
            current: watch::Sender::new(None),
            requests: Mutex::default(),
            headers: Mutex::default(),
            nonces: AtomicUsize::new(0),
        });
        let service = Service(Arc::clone(&shared));
        let (stop, stopped) = oneshot::channel();
        let (ready, listens) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                let listener = TcpListener::bind(address).await.expect("a free port");
                ready.send(()).expect("the test waits");
                let mut server = Server::builder();
                if let Some(tls) = tls {
                    server = server.tls_config(tls).expect("good TLS");
                }
                let service =
                    AggregatedDiscoveryServiceServer::new(service).max_encoding_message_size(usize::MAX);
                let served = server.add_service(service).serve_with_incoming(TcpIncoming::from(listener));
                select! {
                    served = served => served.expect("it serves"),
                    _ = stopped => {}
                }
            });
        });
        listens.recv().expect("it listens");
        Self { port, shared, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Sends rules to all present and future clients.
    pub(crate) fn push(&self, version: &str, configs: &[RateLimitConfig]) {
        let resources = configs.iter().map(any).collect();
        self.push_all(version, TYPE_URL, resources);
    }

    /// Sends rules, and waits until they are reported as active.
    pub(crate) fn push_accepted(&self, version: &str, configs: &[RateLimitConfig]) {
        self.push(version, configs);
        self.wait_for_ack(version);
    }

    pub(crate) fn push_all(&self, version: &str, type_url: &str, resources: Vec<Any>) {
        let version_info = version.to_owned();
        let response = DiscoveryResponse {
            version_info,
            resources,
            type_url: type_url.to_owned(),
            ..Default::default()
        };
        self.shared.current.send_replace(Some(response));
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<DiscoveryRequest> {
        self.shared.requests.lock().expect("no panic").clone()
    }

    /// The headers of the streams so far.
    pub(crate) fn headers(&self) -> Vec<MetadataMap> {
        self.shared.headers.lock().expect("no panic").clone()
    }

    /// Waits for a request.
    pub(crate) fn wait_for(&self, is_it: impl Fn(&DiscoveryRequest) -> bool) -> DiscoveryRequest {
        find("a request", || self.requests().into_iter().find(|request| is_it(request)))
    }

    /// Waits until a version is reported as active.
    pub(crate) fn wait_for_ack(&self, version: &str) -> DiscoveryRequest {
        self.wait_for(|request| {
            request.version_info == version
                && request.error_detail.is_none()
                && !request.response_nonce.is_empty()
        })
    }

    /// Waits until something is refused for a reason that has `part` in it, and gives the reason.
    pub(crate) fn wait_for_nack(&self, part: &str) -> (DiscoveryRequest, String) {
        let reason =
            |request: &DiscoveryRequest| request.error_detail.as_ref().map(|detail| detail.message.clone());
        let request = self.wait_for(|request| reason(request).is_some_and(|reason| reason.contains(part)));
        let reason = reason(&request).expect("looked for");
        (request, reason)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the control plane panicked");
        }
    }
}

pub(crate) fn any(config: &RateLimitConfig) -> Any {
    Any { type_url: TYPE_URL.to_owned(), value: config.encode_to_vec() }
}

/// A domain that allows a key this many requests an hour.
pub(crate) fn config(domain: &str, key: &str, requests_per_unit: u32) -> RateLimitConfig {
    let unit = RateLimitUnit::Hour.into();
    let rate_limit = Some(RateLimitPolicy { unit, requests_per_unit, ..Default::default() });
    let descriptor = RateLimitDescriptor { key: key.to_owned(), rate_limit, ..Default::default() };
    RateLimitConfig {
        name: format!("{domain}-rules"),
        domain: domain.to_owned(),
        descriptors: vec![descriptor],
    }
}

struct Service(Arc<Shared>);

type Answers = Pin<Box<dyn Stream<Item = Result<DiscoveryResponse, Status>> + Send>>;

#[async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = Answers;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Answers>, Status> {
        self.0.headers.lock().expect("no panic").push(request.metadata().clone());
        if self.0.manner == Manner::Closes {
            return Ok(Response::new(Box::pin(stream::empty())));
        }
        if let Manner::Fails(text) = self.0.manner {
            return Err(Status::unavailable(text));
        }
        let (answers, outgoing) = mpsc::unbounded_channel();
        if let Manner::Floods(count) = self.0.manner {
            for number in 1..=count {
                let _ = answers.send(Ok(flooding(number, if number == count { 0 } else { number })));
            }
        }
        tokio::spawn(converse(Arc::clone(&self.0), request.into_inner(), answers));
        let outgoing =
            stream::unfold(outgoing, |mut outgoing| async { Some((outgoing.recv().await?, outgoing)) });
        Ok(Response::new(Box::pin(outgoing)))
    }
}

fn flooding(number: u32, requests_per_unit: u32) -> DiscoveryResponse {
    DiscoveryResponse {
        version_info: number.to_string(),
        resources: vec![any(&config("web", "key", requests_per_unit))],
        type_url: TYPE_URL.to_owned(),
        nonce: format!("flood {number}"),
    }
}

/// Answers a request whose version is another one at once, and otherwise when there is another one.
async fn converse(
    shared: Arc<Shared>,
    mut requests: Streaming<DiscoveryRequest>,
    answers: mpsc::UnboundedSender<Result<DiscoveryResponse, Status>>,
) {
    let mut changes = shared.current.subscribe();
    let (mut nonce, mut watched) = (String::new(), None::<String>);
    loop {
        select! {
            request = requests.next() => {
                let Some(Ok(request)) = request else { return };
                shared.requests.lock().expect("no panic").push(request.clone());
                if request.response_nonce == nonce {
                    watched = Some(request.version_info);
                }
            }
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
        let current = changes.borrow_and_update().clone();
        let (Some(version), Some(response)) = (&watched, current) else { continue };
        if *version != response.version_info {
            nonce = shared.nonces.fetch_add(1, Ordering::Relaxed).to_string();
            watched = None;
            let _ = answers.send(Ok(DiscoveryResponse { nonce: nonce.clone(), ..response }));
        }
    }
}
