//! Requests that are no gRPC calls.
//!
//! A web page can make a browser send a request with the content type of a form or plain text; with that of gRPC the
//! browser first sends a CORS preflight request, which is refused here.

use hyper::{
    Method, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use tonic::{Status, body::Body};

use super::response_body::ResponseBody;

/// Content type of gRPC, which may be followed by `+` and a message format or by `;` and parameters.
const GRPC: &[u8] = b"application/grpc";

/// Reason why a request is no gRPC call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotGrpc {
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

#[cfg(test)]
mod tests {
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
}
