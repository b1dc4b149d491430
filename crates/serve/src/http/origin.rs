//! Signs that a web page made a browser send a request.
//!
//! A page of any origin can send a request with a body, as long as its `Content-Type` is one of a form or plain text, or
//! absent. For `application/json` the browser first sends a CORS preflight request, which never succeeds here, as no
//! response has CORS headers. Browsers send an `Origin` with every request that has a body, and programs send none.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, uri::Authority};

/// Whether a request has an `Origin` that does not equal its `Host`.
pub fn is_cross_origin(request: &Request, host: Option<&Authority>) -> bool {
    request.headers().contains_key(ORIGIN) && !is_same_origin(request.headers(), host)
}

/// Host that a request was sent to.
pub fn host(request: &Request) -> Option<Authority> {
    let stated = request.headers().get(HOST).map(|host| host.as_bytes());
    match (stated, request.uri().authority()) {
        (Some(host), _) => Authority::try_from(host).ok(),
        (None, authority) => authority.cloned(),
    }
}

/// Whether the host does not depend on DNS.
pub fn is_address_or_localhost(host: &Authority) -> bool {
    let name = host.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

/// Whether the only `Origin` equals the `Host`.
fn is_same_origin(headers: &HeaderMap, host: Option<&Authority>) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    let (Some(origin), None, Some(host)) = (origins.next(), origins.next(), host) else { return false };
    let Some((scheme, origin)) = origin.to_str().ok().and_then(|origin| origin.split_once("://")) else {
        return false;
    };
    let default_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return false,
    };
    let Ok(origin) = Authority::try_from(origin) else { return false };
    let port = |authority: &Authority| authority.port_u16().unwrap_or(default_port);
    origin.host().eq_ignore_ascii_case(host.host()) && port(&origin) == port(host)
}

/// Whether the `Content-Type` of a request is JSON.
pub fn is_json(headers: &HeaderMap) -> bool {
    let stated = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = stated.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_content_types_are_accepted() {
        let accepts = |kind: &'static str| {
            is_json(&HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().expect("a value"))]))
        };
        assert!(accepts("application/json") && accepts("Application/JSON; charset=utf-8"));
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "",
            "multipart/form-data",
            "application/jsonp",
        ] {
            assert!(!accepts(kind), "{kind}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
