//! Service that other regions call, and its port.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::{select, task::JoinSet, time::timeout};
use tokio_rustls::server::TlsStream;
use tollgate_control::{Control, ControlError};
use tollgate_proto::tollgate::region::v1::{
    Announcement, CounterLoanRequest, CounterReply, DecideReply, DecideRequest, ExchangeReply,
    ExchangeRequest, ReadRecordsReply, ReadRecordsRequest, ReadRulesReply, ReadRulesRequest,
    counter_reply::Result as Outcome,
    regions_server::{self, RegionsServer},
};
use tollgate_runtime::{log_budget::LogBudget, panics::CatchUnwind};
use tollgate_serve::grpc::request_body::{MessageLimits, WholeMessages};
use tollgate_serve::net::accept::{AcceptLimit, ConnectionActivity, IdleConnections};
use tollgate_serve::net::{Port, metrics::CONNECTIONS_REFUSED, tls::Tls, unfinished};
use tonic::{Request, Response, Status, async_trait, body::Body};
use tower::ServiceExt as _;

use super::tls::PeerNames;
use crate::loans::{Lender, refused};
use crate::metrics::{self, Refusal};
use crate::primary::{MAX_CALLS, PrimaryServer};
use crate::{Regions, announcements::MESSAGES};

/// Counts and logs a refused message, and returns its status.
fn recorded(refusal: Refusal) -> Status {
    metrics::REFUSED.increment([refusal.name()]);
    if let Some(suppressed) = REFUSAL_LOG.take() {
        tracing::warn!(reason = refusal.name(), suppressed, "message between regions refused");
    }
    match refusal {
        Refusal::Malformed => Status::invalid_argument("no sender; expected an announcement"),
        Refusal::UnknownRegion => {
            Status::permission_denied("not another region of the table; expected a known one")
        }
        Refusal::Certificate => {
            Status::permission_denied("not a certificate of the region; expected its certificate_name")
        }
        Refusal::Flood => Status::resource_exhausted("too many messages; expected fewer"),
    }
}

/// Maximum number of loan requests in a message, and of those that are answered at once.
pub(super) const MAX_LOAN_REQUESTS: usize = 256;
const MAX_CONCURRENT_LOAN_REQUESTS: usize = 32;

/// Lines logged at once about refused messages, and the time after which there is another one.
const REFUSALS_LOGGED: u32 = 4;
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(60);

static REFUSAL_LOG: LogBudget = LogBudget::new(REFUSALS_LOGGED, REFUSAL_LOG_INTERVAL);

/// Answers the messages of other regions.
#[derive(Clone, Debug)]
pub(crate) struct RegionsService {
    pub(crate) regions: Regions,
    pub(crate) control: Control,
    pub(crate) lender: Lender,
    pub(crate) primary: PrimaryServer,
}

impl RegionsService {
    /// A reply to each loan request, in their order.
    async fn answers(&self, sender: &Announcement, requests: &[CounterLoanRequest]) -> Vec<CounterReply> {
        if !self.regions.has_same_table(sender) {
            return requests.iter().map(|_| refused(Outcome::Generation)).collect();
        }
        let mut replies = Vec::with_capacity(requests.len());
        for some in requests.chunks(MAX_CONCURRENT_LOAN_REQUESTS) {
            let mut answers = Vec::with_capacity(some.len());
            for request in some {
                answers.push(self.lender.answer(&sender.region, request));
            }
            replies.extend(join_all(answers).await);
        }
        replies
    }

    /// Takes over the announcement of a message whose sender has a certificate of its region, and whose parts are not too
    /// many.
    fn accept<T>(
        &self,
        request: &Request<T>,
        sender: Option<&Announcement>,
        is_bounded: bool,
    ) -> Result<Announcement, Status> {
        let sender = self.sender(request, sender);
        let sender = if is_bounded { sender } else { sender.and(Err(Refusal::Flood)) };
        let sender = sender.map_err(recorded)?;
        self.regions.announced(&sender);
        Ok(sender)
    }

    /// Takes over the announcement of a region that copies what this one writes.
    fn accept_reader<T>(&self, request: &Request<T>, sender: Option<&Announcement>) -> Result<(), Status> {
        self.accept(request, sender, true)?;
        if self.regions.is_writing() {
            return Ok(());
        }
        let reason = "this region does not write the rules; expected the same region table";
        Err(Status::failed_precondition(reason))
    }

    fn sender<T>(
        &self,
        request: &Request<T>,
        sender: Option<&Announcement>,
    ) -> Result<Announcement, Refusal> {
        let names = request.extensions().get::<PeerNames>().ok_or(Refusal::Certificate)?;
        let sender = sender.ok_or(Refusal::Malformed)?;
        let entry = self.regions.other(&sender.region).ok_or(Refusal::UnknownRegion)?;
        if !names.contains(&entry.certificate_name) {
            return Err(Refusal::Certificate);
        }
        if !self.regions.admits(&sender.region, MESSAGES, Instant::now()) {
            return Err(Refusal::Flood);
        }
        Ok(sender.clone())
    }
}

fn unavailable(error: &ControlError) -> Status {
    Status::unavailable(error.to_string())
}

#[async_trait]
impl regions_server::Regions for RegionsService {
    async fn exchange(&self, request: Request<ExchangeRequest>) -> Result<Response<ExchangeReply>, Status> {
        let ExchangeRequest { sender, loan_requests } = request.get_ref();
        let sender = self.accept(&request, sender.as_ref(), loan_requests.len() <= MAX_LOAN_REQUESTS)?;
        let replies = self.answers(&sender, loan_requests).await;
        Ok(Response::new(ExchangeReply { sender: Some(self.regions.announcement()), replies }))
    }

    async fn read_rules(
        &self,
        request: Request<ReadRulesRequest>,
    ) -> Result<Response<ReadRulesReply>, Status> {
        let ReadRulesRequest { sender, version_token } = request.get_ref();
        self.accept_reader(&request, sender.as_ref())?;
        self.control.rules_after(version_token).await.map(Response::new).map_err(|error| unavailable(&error))
    }

    async fn read_records(
        &self,
        request: Request<ReadRecordsRequest>,
    ) -> Result<Response<ReadRecordsReply>, Status> {
        let ReadRecordsRequest { sender, known, is_continued } = request.get_ref();
        self.accept_reader(&request, sender.as_ref())?;
        let page = self.control.records_after(&known.clone().unwrap_or_default(), *is_continued).await;
        page.map(Response::new).map_err(|error| unavailable(&error))
    }

    async fn decide(&self, request: Request<DecideRequest>) -> Result<Response<DecideReply>, Status> {
        let DecideRequest { sender, calls } = request.get_ref();
        let sender = self.accept(&request, sender.as_ref(), calls.len() <= MAX_CALLS)?;
        let replies = self.primary.answer(&sender.region, calls).await;
        Ok(Response::new(DecideReply { replies }))
    }
}

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

/// Serves the port: accepts connections and performs their handshakes. Never completes.
pub(crate) async fn serve(listener: TcpListener, tls: Tls, service: RegionsService) {
    let service = RegionsServer::new(service).max_decoding_message_size(MAX_MESSAGE_BYTES);
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
                let (tls, service, places) = (tls.clone(), service.clone(), Arc::clone(&places));
                handshakes.spawn(async move {
                    let _ = stream.set_nodelay(true);
                    let stream = select! {
                        stream = tls.accept(stream, HANDSHAKE_TIMEOUT) => stream,
                        () = handshake.closed() => None,
                    };
                    let Some(stream) = stream else { return };
                    if let Ok(place) = places.try_acquire_owned() {
                        tokio::spawn(CatchUnwind::new(answer_all(stream, service, place)));
                    } else {
                        CONNECTIONS_REFUSED.increment([Port::Region.name()]);
                    }
                });
            }
            Ok(_) => {}
            Err(error) => _ = limit.accept_failed(&error, || idle.close_longest()).await,
        }
    }
}

/// Answers the messages of a connection whose client has a certificate of the CA. Its place among the connections is free
/// when it is closed.
async fn answer_all(
    stream: TlsStream<TcpStream>,
    service: RegionsServer<RegionsService>,
    _place: OwnedSemaphorePermit,
) {
    let names = PeerNames::of(&stream);
    let service = service_fn(move |mut call: hyper::Request<Incoming>| {
        call.extensions_mut().insert(names.clone());
        let headers = unfinished::bytes_of(call.headers());
        let limited = |body| Body::new(WholeMessages::new(body, Port::Region, MESSAGE_LIMITS, headers));
        let reply = timeout(MESSAGE_TIMEOUT, service.clone().oneshot(call.map(limited)));
        async { reply.await.unwrap_or_else(|_| Ok(Status::cancelled("timeout").into_http())) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_MESSAGES)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10))
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "connection between regions ended");
    }
}
