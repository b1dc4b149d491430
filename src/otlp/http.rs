//! OTLP over HTTP/1.1, with messages in protobuf.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use tokio::task::spawn_blocking;
use ureq::Agent;

use super::{
    CollectorSettings,
    collector::{CollectorError, ExportError, MAX_RESPONSE_BYTES, Signal, USER_AGENT},
};
use crate::http_client;

/// Client of one path of a collector, with connections that are kept.
#[derive(Clone, Debug)]
pub(super) struct HttpClient {
    agent: Agent,
    url: String,
    headers: HeaderMap,
}

impl HttpClient {
    /// A client whose requests fail after `timeout`.
    pub(super) fn new(
        settings: &CollectorSettings,
        signal: Signal,
        timeout: Duration,
    ) -> Result<Self, CollectorError> {
        let roots = http_client::roots(settings.ca_certificate.as_deref());
        Ok(Self {
            agent: http_client::agent(roots.map_err(CollectorError::Authorities)?, None, timeout),
            url: url(&settings.endpoint, signal),
            headers: settings.headers.iter().cloned().collect(),
        })
    }

    /// Sends a message once. If the future is dropped, the request ends in the background, within its time limit.
    pub(super) async fn send(&self, message: Bytes) -> Result<Bytes, ExportError> {
        let client = self.clone();
        let sent = spawn_blocking(move || client.post(&message)).await;
        sent.unwrap_or_else(|_| Err(ExportError::temporary("the request was cancelled")))
    }

    fn post(&self, message: &[u8]) -> Result<Bytes, ExportError> {
        let request = self.agent.post(&self.url);
        let request =
            request.header("content-type", "application/x-protobuf").header("user-agent", USER_AGENT);
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        let response =
            request.send(message).map_err(|error| ExportError::temporary(&http_client::reason(&error)))?;
        let (head, mut body) = response.into_parts();
        match head.status.is_success() {
            // Accepted, whatever the body is.
            true => Ok(body
                .with_config()
                .limit(MAX_RESPONSE_BYTES as u64)
                .read_to_vec()
                .unwrap_or_default()
                .into()),
            false => Err(failure(head.status, &head.headers)),
        }
    }
}

/// The URL of a signal: its path is added to an empty one, and to one that ends in a slash.
fn url(endpoint: &str, signal: Signal) -> String {
    let path = match signal {
        Signal::Traces => "v1/traces",
        Signal::Metrics => "v1/metrics",
    };
    let has_path = endpoint.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    match has_path {
        true if endpoint.ends_with('/') => format!("{endpoint}{path}"),
        true => endpoint.to_owned(),
        false => format!("{endpoint}/{path}"),
    }
}

/// Whether another attempt may succeed is what the OTLP specification states for the status.
fn failure(status: StatusCode, headers: &HeaderMap) -> ExportError {
    let reason = format!("status {}", status.as_u16());
    match status.as_u16() {
        429 | 502 | 503 | 504 => {
            let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
            ExportError::temporary_after(&reason, seconds.map(Duration::from_secs).unwrap_or_default())
        }
        _ => ExportError::Permanent(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_signal_is_added_to_a_base_url() {
        let of = |endpoint| url(endpoint, Signal::Metrics);
        assert_eq!(of("http://c:4318"), "http://c:4318/v1/metrics");
        assert_eq!(of("http://c:4318/"), "http://c:4318/v1/metrics");
        assert_eq!(of("https://c/otlp/"), "https://c/otlp/v1/metrics");
        assert_eq!(of("https://c/api/v1/push"), "https://c/api/v1/push");
        assert_eq!(url("http://c:4318", Signal::Traces), "http://c:4318/v1/traces");
    }

    #[test]
    fn only_statuses_after_which_an_attempt_may_succeed_are_temporary() {
        let is_temporary = |status: &u16| {
            let status = StatusCode::from_u16(*status).expect("a status");
            matches!(failure(status, &HeaderMap::new()), ExportError::Temporary { .. })
        };
        assert_eq!((300..600).filter(is_temporary).collect::<Vec<_>>(), [429, 502, 503, 504]);
    }

    #[test]
    fn a_collector_may_request_a_bounded_pause() {
        let after = |value: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, http::HeaderValue::from_static(value))]);
            match failure(StatusCode::TOO_MANY_REQUESTS, &headers) {
                ExportError::Temporary { after, .. } => after.as_secs(),
                ExportError::Permanent(reason) => panic!("{reason}"),
            }
        };
        assert_eq!((after("7"), after("86400"), after("soon")), (7, 30, 0));
    }
}
