//! OTLP over gRPC.

use std::{path::Path, time::Duration};

use bytes::{Buf as _, BufMut as _, Bytes};
use http::{HeaderMap, uri::PathAndQuery};
use parking_lot::Mutex;
use tollgate_runtime::redact;
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
    Ok(tls.ca_certificate(Certificate::from_pem(std::fs::read(path).map_err(unread)?)))
}

/// Whether another attempt may succeed is what the OTLP specification states for the code. `RESOURCE_EXHAUSTED` is
/// temporary only with a delay in its details; without reading these, it counts as permanent.
fn failure(status: &Status) -> ExportError {
    let reason = format!("{:?}: {}", status.code(), status.message());
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => ExportError::temporary(&reason),
        _ => ExportError::permanent(&reason),
    }
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
}
