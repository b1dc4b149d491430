//! A collector: sends spans by OTLP, over gRPC or over HTTP with protobuf, with time limits and further attempts.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use http::HeaderMap;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse, trace_service_client::TraceServiceClient,
};
use prost::Message as _;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout_at};
use tollgate_runtime::{backoff::Backoff, bounded_file, http_client, redact};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Response, Status, metadata::MetadataMap};
use ureq::Agent;

use super::settings::{OtlpProtocol, TraceSettings};

/// Time limit for a message with further attempts.
pub(super) const EXPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// First and longest pause between two attempts.
const BACKOFF: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];

/// Maximum size of a response: it has a count and a text.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// Name of this program in requests.
const USER_AGENT: &str = concat!("tollgate/", env!("CARGO_PKG_VERSION"));

/// The trace service of a collector, which may be unreachable.
#[derive(Debug)]
pub(super) enum Collector {
    Grpc(Box<GrpcClient>),
    Http(HttpClient),
}

#[derive(Debug)]
pub(super) struct GrpcClient {
    endpoint: Endpoint,
    headers: MetadataMap,
    /// Present since its first use, and until an attempt on its connection has no response in time.
    client: Option<TraceServiceClient<Channel>>,
}

#[derive(Clone, Debug)]
pub(super) struct HttpClient {
    agent: Agent,
    url: String,
    headers: HeaderMap,
}

/// Failure of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ExportError {
    /// Reason, bounded.
    reason: String,
    /// Whether another attempt may succeed, as the OTLP specification states for a code or a status. If the collector requests
    /// a pause, it takes longer than a message is kept.
    is_temporary: bool,
}

impl Collector {
    pub(super) fn new(url: &str, settings: &TraceSettings) -> Result<Self, String> {
        let headers: HeaderMap = settings.headers.iter().flatten().cloned().collect();
        // A file without a certificate is an error at the start, and not of each export.
        let roots = http_client::roots(settings.ca_certificate.as_deref());
        let roots = roots.map_err(|error| unusable_authorities(&error))?;
        Ok(match settings.protocol() {
            OtlpProtocol::Grpc => Self::Grpc(Box::new(GrpcClient {
                endpoint: endpoint(url, settings.ca_certificate.as_deref())?,
                headers: MetadataMap::from_headers(headers),
                client: None,
            })),
            OtlpProtocol::Http => Self::Http(HttpClient {
                agent: http_client::agent(roots, None, EXPORT_TIMEOUT),
                url: traces_url(url),
                headers,
            }),
        })
    }

    /// Sends a message until it is accepted or refused, or the time is over. Returns the number of spans that were refused.
    ///
    /// # Errors
    /// The reason of the last failure.
    pub(super) async fn export(
        &mut self,
        message: &ExportTraceServiceRequest,
        until: Instant,
    ) -> Result<u64, String> {
        let [initial, max] = BACKOFF;
        let mut backoff = Backoff::new(initial, max);
        let mut last = None;
        loop {
            let error = match timeout_at(until, self.attempt(message.clone())).await {
                Ok(Ok(response)) => {
                    let refused = response.partial_success.unwrap_or_default().rejected_spans;
                    return Ok(u64::try_from(refused).unwrap_or_default());
                }
                Ok(Err(error)) => error,
                Err(_) => {
                    // A peer that vanished does not close the connection, and the kernel needs a quarter of an hour to
                    // notice: the next message is sent over another one.
                    if let Self::Grpc(client) = self {
                        client.client = None;
                    }
                    return Err(last.unwrap_or_else(|| "timeout".to_owned()));
                }
            };
            let pause = backoff.pause();
            if !error.is_temporary || Instant::now() + pause >= until {
                return Err(error.reason);
            }
            last = Some(error.reason);
            sleep(pause).await;
        }
    }

    async fn attempt(
        &mut self,
        message: ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, ExportError> {
        match self {
            Self::Grpc(client) => client.send(message).await,
            Self::Http(client) => {
                let client = client.clone();
                // If this future is dropped, the request ends in the background, within its time limit.
                let sent = spawn_blocking(move || client.post(&message.encode_to_vec())).await;
                sent.unwrap_or_else(|_| Err(ExportError::temporary("the request was cancelled")))
            }
        }
    }
}

impl GrpcClient {
    async fn send(
        &mut self,
        message: ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, ExportError> {
        let connect = || {
            let channel = self.endpoint.connect_lazy();
            TraceServiceClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES)
        };
        let client = self.client.get_or_insert_with(connect);
        let mut request = Request::new(message);
        *request.metadata_mut() = self.headers.clone();
        client.export(request).await.map(Response::into_inner).map_err(|status| refused(&status))
    }
}

impl HttpClient {
    fn post(&self, message: &[u8]) -> Result<ExportTraceServiceResponse, ExportError> {
        let request = self.agent.post(&self.url).header("content-type", "application/x-protobuf");
        let request = request.header("user-agent", USER_AGENT);
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        let response = request.send(message);
        let mut response = response.map_err(|error| ExportError::temporary(&http_client::reason(&error)))?;
        let status = response.status();
        if !status.is_success() {
            let is_temporary = matches!(status.as_u16(), 429 | 502 | 503 | 504)
                && !response.headers().contains_key("retry-after");
            return Err(ExportError { reason: format!("status {}", status.as_u16()), is_temporary });
        }
        // Accepted, whatever the body is.
        let body = response.body_mut().with_config().limit(MAX_RESPONSE_BYTES as u64).read_to_vec();
        Ok(ExportTraceServiceResponse::decode(Bytes::from(body.unwrap_or_default())).unwrap_or_default())
    }
}

impl ExportError {
    fn temporary(reason: &str) -> Self {
        Self { reason: redact::bounded(reason), is_temporary: true }
    }
}

/// The failure that a status states. Its details have the pause that the collector requests.
fn refused(status: &Status) -> ExportError {
    let is_temporary = status.details().is_empty()
        && matches!(
            status.code(),
            Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Aborted
                | Code::OutOfRange
                | Code::Unavailable
                | Code::DataLoss
        );
    // Without its source, a failed connection has no reason.
    let mut reason = format!("{:?}: {}", status.code(), status.message());
    if let Some(source) = std::error::Error::source(status) {
        reason = format!("{reason}: {source}");
    }
    ExportError { reason: redact::bounded(&reason), is_temporary }
}

fn endpoint(url: &str, authorities: Option<&Path>) -> Result<Endpoint, String> {
    let unusable = |error: tonic::transport::Error| {
        let source = std::error::Error::source(&error).map(ToString::to_string);
        format!("unusable endpoint: {}", source.unwrap_or_else(|| error.to_string()))
    };
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(unusable)?;
    let endpoint = endpoint.connect_timeout(EXPORT_TIMEOUT).user_agent(USER_AGENT).map_err(unusable)?;
    if endpoint.uri().scheme_str() != Some("https") {
        return Ok(endpoint);
    }
    let tls = match authorities {
        None => ClientTlsConfig::new().with_enabled_roots(),
        Some(path) => {
            let unread = |error| unusable_authorities(&format!("{}: {error}", redact::path(path)));
            ClientTlsConfig::new()
                .ca_certificate(Certificate::from_pem(bounded_file::read(path).map_err(unread)?))
        }
    };
    endpoint.tls_config(tls).map_err(unusable)
}

fn unusable_authorities(reason: &str) -> String {
    format!("unusable --otlp-ca: {reason}")
}

/// The URL of traces: their path is added to an empty one, and to one that ends in a slash.
fn traces_url(endpoint: &str) -> String {
    let has_path = endpoint.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    match has_path {
        true if endpoint.ends_with('/') => format!("{endpoint}v1/traces"),
        true => endpoint.to_owned(),
        false => format!("{endpoint}/v1/traces"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::{net::TcpListener, select};

    use super::*;

    fn settings(protocol: OtlpProtocol) -> TraceSettings {
        TraceSettings { protocol: Some(protocol), ..tollgate_fixtures::settings("") }
    }

    #[tokio::test]
    async fn invalid_settings_are_an_error() {
        for (endpoint, ca, protocol) in [
            ("https://localhost:1", Some("/nowhere/ca.pem"), OtlpProtocol::Grpc),
            ("https://localhost:1", Some("/nowhere/ca.pem"), OtlpProtocol::Http),
            // A file without a certificate.
            ("https://localhost:1", Some("Cargo.toml"), OtlpProtocol::Grpc),
            ("https://localhost:1", Some("Cargo.toml"), OtlpProtocol::Http),
            ("http://[:1", None, OtlpProtocol::Grpc),
        ] {
            let settings = TraceSettings { ca_certificate: ca.map(Into::into), ..settings(protocol) };
            assert!(Collector::new(endpoint, &settings).is_err(), "{endpoint} {protocol:?}");
        }
    }

    #[tokio::test]
    async fn a_message_without_a_response_is_followed_by_another_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let endpoint = format!("http://{address}");
        let mut collector = Collector::new(&endpoint, &settings(OtlpProtocol::Grpc)).expect("valid");
        let exports = async {
            // Most of a busy machine's rounds may end before they connect.
            for _ in 0..200 {
                let until = Instant::now() + Duration::from_millis(50);
                collector
                    .export(&ExportTraceServiceRequest::default(), until)
                    .await
                    .expect_err("no response");
            }
        };
        // Both stay open, and are silent.
        let connections = async { [listener.accept().await, listener.accept().await] };
        select! {
            () = exports => panic!("no second connection"),
            connections = connections => assert!(connections.iter().all(Result::is_ok), "{connections:?}"),
        }
    }

    #[test]
    fn only_failures_after_which_an_attempt_may_succeed_are_temporary() {
        let is_temporary = |code: &Code| refused(&Status::new(*code, "x")).is_temporary;
        let temporary: Vec<Code> = (1..=16).map(Code::from_i32).filter(is_temporary).collect();
        let expected = [
            Code::Cancelled,
            Code::DeadlineExceeded,
            Code::Aborted,
            Code::OutOfRange,
            Code::Unavailable,
            Code::DataLoss,
        ];
        assert_eq!(temporary, expected);
        let with_pause = Status::with_details(Code::Unavailable, "x", Bytes::from_static(b"RetryInfo"));
        assert!(!refused(&with_pause).is_temporary);
    }

    #[test]
    fn the_path_of_traces_is_added_to_a_base_url() {
        for (endpoint, expected) in [
            ("http://c:4318", "http://c:4318/v1/traces"),
            ("http://c:4318/", "http://c:4318/v1/traces"),
            ("https://c/otlp/", "https://c/otlp/v1/traces"),
            ("https://c/api/v1/push", "https://c/api/v1/push"),
        ] {
            assert_eq!(traces_url(endpoint), expected);
        }
    }
}
