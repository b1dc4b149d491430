//! OTLP over gRPC.

use std::{path::Path, time::Duration};

use bytes::{Buf as _, BufMut as _, Bytes};
use http::{HeaderMap, uri::PathAndQuery};
use parking_lot::Mutex;
use prost::Message as _;
use tollgate_runtime::{bounded_file, redact};
use tonic::{
    Code, Request, Response, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    metadata::MetadataMap,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

use super::{
    CollectorSettings,
    collector::{CollectorError, ExportError, MAX_RESPONSE_BYTES, Signal, USER_AGENT},
};
use crate::http_client;

/// Name of the detail that requests a pause.
const RETRY_INFO: &str = "google.rpc.RetryInfo";

/// `google.rpc.Status`, of which the details are read.
#[derive(Clone, PartialEq, prost::Message)]
struct RichStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

/// Connection to one service of a collector. Connects when it is first used, and again after it is lost or abandoned.
#[derive(Debug)]
pub(super) struct GrpcClient {
    endpoint: Endpoint,
    channel: Mutex<Channel>,
    method: PathAndQuery,
    headers: HeaderMap,
}

impl GrpcClient {
    /// A client. Its connections run on the runtime that this is called in.
    pub(super) fn new(
        settings: &CollectorSettings,
        signal: Signal,
        timeout: Duration,
    ) -> Result<Self, CollectorError> {
        let unusable = |error: tonic::transport::Error| CollectorError::Endpoint(with_source(&error));
        let endpoint = Endpoint::from_shared(settings.endpoint.clone()).map_err(unusable)?;
        let endpoint = endpoint.connect_timeout(timeout).user_agent(USER_AGENT).map_err(unusable)?;
        // URL schemes are case-insensitive.
        let is_tls = settings.endpoint.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
        let endpoint = match is_tls {
            true => endpoint.tls_config(tls(settings.ca_certificate.as_deref())?).map_err(unusable)?,
            false => endpoint,
        };
        Ok(Self {
            channel: Mutex::new(endpoint.connect_lazy()),
            endpoint,
            method: PathAndQuery::from_static(match signal {
                Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
                Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            }),
            headers: settings.headers.iter().cloned().collect(),
        })
    }

    /// Sends a message once.
    pub(super) async fn send(&self, message: Bytes) -> Result<Bytes, ExportError> {
        let channel = self.channel.lock().clone();
        let mut service = Grpc::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
        service.ready().await.map_err(|error| ExportError::temporary(&with_source(&error)))?;
        let mut request = Request::new(message);
        *request.metadata_mut() = MetadataMap::from_headers(self.headers.clone());
        let reply = service.unary(request, self.method.clone(), EncodedCodec).await;
        reply.map(Response::into_inner).map_err(|status| failure(&status))
    }

    /// Abandons the connection, so that the next message is sent over another one: a peer that vanished does not close it, and
    /// the kernel needs a quarter of an hour to notice.
    pub(super) fn abandon(&self) {
        *self.channel.lock() = self.endpoint.connect_lazy();
    }
}

/// TLS with its CA certificates; without a configuration, no certificate would be trusted.
fn tls(ca: Option<&Path>) -> Result<ClientTlsConfig, CollectorError> {
    let tls = ClientTlsConfig::new();
    let Some(path) = ca else { return Ok(tls.with_enabled_roots()) };
    // A file without a certificate is an error at the start, and not of each export.
    http_client::roots(Some(path)).map_err(CollectorError::Authorities)?;
    let unread =
        |error: std::io::Error| CollectorError::Authorities(format!("{}: {error}", redact::path(path)));
    Ok(tls.ca_certificate(Certificate::from_pem(bounded_file::read(path).map_err(unread)?)))
}

/// Whether another attempt may succeed is what the OTLP specification states for the code, and when is what the `RetryInfo` in
/// the details states. `RESOURCE_EXHAUSTED` is temporary only with one.
fn failure(status: &Status) -> ExportError {
    let reason = format!("{:?}: {}", status.code(), status.message());
    let after = retry_delay(status.details());
    let temporary = || ExportError::temporary_after(&reason, after.unwrap_or_default());
    match status.code() {
        Code::ResourceExhausted if after.is_some() => temporary(),
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => temporary(),
        _ => ExportError::permanent(&reason),
    }
}

/// The pause that the details of a status request by a `google.rpc.RetryInfo`, which begins with its `retry_delay`.
fn retry_delay(details: &[u8]) -> Option<Duration> {
    let details = RichStatus::decode(details).ok()?.details;
    let info = details.into_iter().find(|detail| detail.type_url.rsplit('/').next() == Some(RETRY_INFO))?;
    let delay = RetryInfo::decode(&*info.value).ok()?.retry_delay.unwrap_or_default();
    Some(Duration::try_from(delay).unwrap_or_default())
}

/// An error with its source, without which a failed connection has no reason.
fn with_source(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// A codec of messages that are encoded already.
#[derive(Clone, Copy, Debug)]
struct EncodedCodec;

impl Codec for EncodedCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for EncodedCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for EncodedCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statuses_after_which_an_attempt_may_succeed_are_temporary() {
        let is_temporary = |code| matches!(failure(&Status::new(code, "x")), ExportError::Temporary { .. });
        let all = (0..=16).map(Code::from_i32).filter(|code| *code != Code::Ok);
        let temporary: Vec<Code> = all.filter(|code| is_temporary(*code)).collect();
        let expected = [
            Code::Cancelled,
            Code::DeadlineExceeded,
            Code::Aborted,
            Code::OutOfRange,
            Code::Unavailable,
            Code::DataLoss,
        ];
        assert_eq!(temporary, expected);
    }

    /// A status whose details have these messages, by the last part of their type.
    fn with_details(code: Code, details: &[(&str, Vec<u8>)]) -> Status {
        let any = |(name, value): &(&str, Vec<u8>)| prost_types::Any {
            type_url: format!("type.googleapis.com/{name}"),
            value: value.clone(),
        };
        let details = RichStatus { details: details.iter().map(any).collect() }.encode_to_vec();
        Status::with_details(code, "x", details.into())
    }

    #[test]
    fn a_collector_may_request_a_bounded_pause() {
        let delay = |seconds: i64, nanos: i32| {
            let delay = prost_types::Duration { seconds, nanos };
            RetryInfo { retry_delay: Some(delay) }.encode_to_vec()
        };
        let after = |status: &Status| match failure(status) {
            ExportError::Temporary { after, .. } => Some(after.as_millis()),
            ExportError::Permanent(_) => None,
        };
        for code in [Code::Unavailable, Code::ResourceExhausted] {
            let of = |details: &[(&str, Vec<u8>)]| after(&with_details(code, details));
            let other = ("google.rpc.ErrorInfo", b"\x0a\x01x".to_vec());
            assert_eq!(of(&[other.clone(), (RETRY_INFO, delay(7, 500_000_000))]), Some(7_500), "{code:?}");
            assert_eq!(of(&[(RETRY_INFO, delay(86_400, 0))]), Some(30_000), "{code:?}");
            assert_eq!(of(&[(RETRY_INFO, delay(-1, 0))]), Some(0), "{code:?}");
            assert_eq!(of(&[(RETRY_INFO, Vec::new())]), Some(0), "{code:?}");
            let without = (code == Code::Unavailable).then_some(0);
            assert_eq!(of(&[other]), without, "{code:?}");
            assert_eq!(of(&[(RETRY_INFO, b"\xff".to_vec())]), without, "{code:?}");
            assert_eq!(
                after(&Status::with_details(code, "x", Bytes::from_static(b"\xff"))),
                without,
                "{code:?}"
            );
        }
        assert_eq!(after(&with_details(Code::InvalidArgument, &[(RETRY_INFO, delay(1, 0))])), None);
    }
}
