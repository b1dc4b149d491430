//! Protection against requests that a web page of another origin makes an operator's browser send.
//!
//! Where callers need no credentials, any page that an operator has open could send requests to this port. Three checks
//! prevent that:
//! - Changes require a JSON body (`extract/body.rs`) or the method DELETE. A page can send neither without a CORS
//!   preflight request, which never succeeds, as no response has CORS headers.
//! - Without credentials, requests with a host name other than `localhost` are refused: an attacker's name may resolve to
//!   this address (DNS rebinding).
//! - Requests whose `Origin` differs from their `Host` are refused.

use std::net::IpAddr;

use axum::{
    extract::{Request, State},
    http::{
        HeaderMap,
        header::{HOST, ORIGIN},
        uri::Authority,
    },
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::error::ApiError;
use crate::http::admin::auth::Authenticator;

/// Refuses requests that may come from a page of another origin.
pub(in crate::http) async fn refuse_other_origins(
    State(auth): State<Authenticator>,
    request: Request,
    next: Next,
) -> Response {
    match check(&auth, &request) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn check(auth: &Authenticator, request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    let host = host(request);
    if !auth.requires_credentials() && !host.as_ref().is_some_and(is_address_or_localhost) {
        let message = "untrusted Host; without a token, expected an IP address or localhost";
        return Err(ApiError::Forbidden(message.to_owned()));
    }
    if headers.contains_key(ORIGIN) && !is_same_origin(headers, host.as_ref()) {
        return Err(ApiError::Forbidden(
            "cross-origin request; expected an Origin equal to the Host".to_owned(),
        ));
    }
    Ok(())
}

fn host(request: &Request) -> Option<Authority> {
    let stated = request.headers().get(HOST).map(|host| host.as_bytes());
    match (stated, request.uri().authority()) {
        (Some(host), _) => Authority::try_from(host).ok(),
        (None, authority) => authority.cloned(),
    }
}

/// Whether the host does not depend on DNS.
fn is_address_or_localhost(host: &Authority) -> bool {
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

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn passes(requires_client_certificate: bool, method: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().method(method).uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let auth = Authenticator { tokens: None, requires_client_certificate };
        check(&auth, &request.body(Body::empty()).expect("a request")).is_ok()
    }

    #[test]
    fn host_names_are_refused_unless_callers_need_credentials() {
        for host in ["127.0.0.1:6070", "localhost", "LocalHost:6070", "[::1]:6070", "10.0.0.1"] {
            assert!(passes(false, "GET", &[("host", host)]), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:6070", "127.0.0.1.evil.example", "", "a b"] {
            assert!(!passes(false, "GET", &[("host", host)]), "{host}");
        }
        assert!(!passes(false, "GET", &[]));
        assert!(passes(true, "GET", &[("host", "rate.example")]) && passes(true, "GET", &[]));
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let from = |host, origin| passes(true, "GET", &[("host", host), ("origin", origin)]);
        assert!(from("localhost:6070", "http://localhost:6070"));
        assert!(
            from("rate.example", "https://rate.example") && from("rate.example:443", "https://Rate.example")
        );
        for origin in
            ["http://localhost:6071", "http://evil.example:6070", "null", "file://", "http://localhost"]
        {
            assert!(!from("localhost:6070", origin), "{origin}");
        }
        let twice = [("host", "a"), ("origin", "http://a"), ("origin", "http://b")];
        assert!(!passes(true, "GET", &twice));
    }
}
