//! Headers of a call: whether they are those of gRPC, and the deadline that follows from its `grpc-timeout`.
//!
//! A web page can make a browser send a request with the content type of a form or plain text; with that of gRPC the
//! browser first sends a CORS preflight request, which is refused here.

use std::time::Duration;

use hyper::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode, http::Extensions};
use tollgate_gate::parse_timeout;
use tollgate_limiter::Deadline;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Status, body::Body};

use super::response_body::ResponseBody;

/// Content type of gRPC, which may be followed by `+` and a message format or by `;` and parameters.
const GRPC: &[u8] = b"application/grpc";

/// Reason why a request is no gRPC call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotGrpc {
    Method,
    ContentType,
}

impl NotGrpc {
    /// Returns why a request with this method and these headers is no gRPC call; `None` for a call.
    pub(super) fn check(method: &Method, headers: &HeaderMap) -> Option<Self> {
        if *method != Method::POST {
            return Some(Self::Method);
        }
        let is_grpc = headers.get(CONTENT_TYPE).is_some_and(|kind| is_grpc(kind.as_bytes()));
        (!is_grpc).then_some(Self::ContentType)
    }

    /// Response to the request. The codes are those of grpc-go.
    pub(super) fn response(self) -> Response<ResponseBody> {
        let (code, status) = match self {
            Self::Method => {
                (StatusCode::METHOD_NOT_ALLOWED, Status::internal("unsupported method; expected POST"))
            }
            Self::ContentType => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                Status::invalid_argument("unsupported content-type; expected application/grpc"),
            ),
        };
        let mut response = status.into_http::<Body>();
        *response.status_mut() = code;
        if self == Self::Method {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        }
        ResponseBody::wrap(response)
    }
}

fn is_grpc(kind: &[u8]) -> bool {
    let Some((start, rest)) = kind.split_at_checked(GRPC.len()) else { return false };
    start.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b';'))
}

/// Header with the compression of the messages.
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Refuses a call whose message is compressed.
pub(super) fn reject_compression(headers: &HeaderMap) -> Result<(), Status> {
    match headers.get(GRPC_ENCODING) {
        Some(encoding) if encoding != "identity" => {
            let encoding = encoding.to_str().unwrap_or("?");
            let text = format!("Content is compressed with `{encoding}` which isn't supported");
            let mut status = Status::unimplemented(text);
            status.metadata_mut().insert("grpc-accept-encoding", MetadataValue::from_static("identity"));
            Err(status)
        }
        Some(_) | None => Ok(()),
    }
}

/// Header with the caller's timeout.
pub(super) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Share of the caller's timeout that a decision may take, in percent. The rest is for the network and the queues.
const DECISION_PERCENT: u32 = 65;

/// Marker in a call's extensions: no time is left to call the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct SkipStore;

/// Time that a call has waited before it is decided, in its extensions if it is not negligible.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waited(pub(super) Duration);

/// Deadline of the store for a call.
pub(super) fn store_deadline(metadata: &MetadataMap, extensions: &Extensions) -> Deadline {
    if extensions.get::<SkipStore>().is_some() {
        return Deadline::Exceeded;
    }
    let waited = extensions.get().map_or(Duration::ZERO, |Waited(waited)| *waited);
    let share = |timeout| percent_of(timeout, DECISION_PERCENT).saturating_sub(waited);
    Deadline::At(grpc_timeout(metadata.as_ref()).map(share))
}

/// Timeout that the caller sent, if it is readable.
pub(super) fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    headers.get(GRPC_TIMEOUT).and_then(|header| parse_timeout(header.as_bytes()))
}

pub(super) fn percent_of(timeout: Duration, percent: u32) -> Duration {
    timeout * percent / 100
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn only_posts_of_grpc_content_types_are_calls() {
        let check = |method, kind: &'static str| {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
            NotGrpc::check(&method, &headers)
        };
        for kind in ["application/grpc", "application/grpc+proto", "Application/gRPC;charset=utf-8"] {
            assert_eq!(check(Method::POST, kind), None, "{kind}");
            for method in [Method::GET, Method::PUT, Method::OPTIONS] {
                assert_eq!(check(method, kind), Some(NotGrpc::Method), "{kind}");
            }
        }
        for kind in [
            "",
            "application/grp",
            "application/grpc-web",
            "application/grpc-web+proto",
            "application/json",
            "application/x-www-form-urlencoded",
            "text/plain",
        ] {
            assert_eq!(check(Method::POST, kind), Some(NotGrpc::ContentType), "{kind}");
        }
        assert_eq!(NotGrpc::check(&Method::POST, &HeaderMap::new()), Some(NotGrpc::ContentType));
    }

    fn deadline(timeout: &'static str, extensions: &Extensions) -> Deadline {
        let headers = HeaderMap::from_iter([(GRPC_TIMEOUT, HeaderValue::from_static(timeout))]);
        store_deadline(&MetadataMap::from_headers(headers), extensions)
    }

    #[test]
    fn a_decision_may_take_part_of_the_timeout() {
        for (header, micros) in [
            ("20m", 13_000),
            ("1S", 650_000),
            ("1000u", 650),
            ("20000n", 13),
            ("2M", 78_000_000),
            ("99999999H", 233_999_997_660_000_000),
            ("0m", 0),
        ] {
            let deadline = deadline(header, &Extensions::new());
            assert_eq!(deadline, Deadline::At(Some(Duration::from_micros(micros))), "{header}");
        }
    }

    #[test]
    fn a_marked_call_has_no_time_for_the_store() {
        let mut extensions = Extensions::new();
        extensions.insert(SkipStore);
        assert_eq!(deadline("20m", &extensions), Deadline::Exceeded);
    }

    #[test]
    fn the_time_that_a_call_has_waited_is_not_left_for_the_store() {
        let mut extensions = Extensions::new();
        extensions.insert(Waited(Duration::from_millis(5)));
        assert_eq!(deadline("20m", &extensions), Deadline::At(Some(Duration::from_millis(8))));
        assert_eq!(deadline("5m", &extensions), Deadline::At(Some(Duration::ZERO)));
        assert_eq!(deadline("", &extensions), Deadline::UNKNOWN);
    }

    #[test]
    fn a_malformed_header_counts_as_absent() {
        for header in ["", "m", "20", "20ms", "-1m", "+1m", "1.5S", "123456789m", "20x", "?m"] {
            assert_eq!(deadline(header, &Extensions::new()), Deadline::UNKNOWN, "{header}");
        }
    }

    #[test]
    fn compressed_requests_are_rejected_with_the_accepted_encoding() {
        let mut headers = HeaderMap::new();
        assert!(reject_compression(&headers).is_ok());
        headers.insert("grpc-encoding", HeaderValue::from_static("identity"));
        assert!(reject_compression(&headers).is_ok());
        headers.insert("grpc-encoding", HeaderValue::from_static("gzip"));
        let status = reject_compression(&headers).expect_err("is rejected");
        assert_eq!(status.code(), Code::Unimplemented);
        assert_eq!(status.metadata().get("grpc-accept-encoding").expect("present"), "identity");
    }
}
