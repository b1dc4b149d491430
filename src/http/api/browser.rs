//! What a web page from elsewhere makes an operator's browser do.
//!
//! Where callers need show nothing, any page that an operator has open could ask this port in the operator's name. Three
//! things keep it from that: what changes something takes JSON (`body`) or is a DELETE, neither of which it can send
//! without asking first, and that is not answered (there are no headers of CORS); what it asks for by a name of its own
//! that leads here is refused; and so is what says that it comes from elsewhere.

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
use crate::http::access::Gate;

/// Refuses what may come from a page elsewhere.
pub(in crate::http) async fn keep_out(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    match check(&gate, &request) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn check(gate: &Gate, request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    let host = host(request);
    if !gate.is_guarded() && !host.as_ref().is_some_and(is_of_this_machine) {
        let message = "without a token, expected an address or localhost as the Host";
        return Err(ApiError::Forbidden(message.to_owned()));
    }
    if headers.contains_key(ORIGIN) && !is_same(headers, host.as_ref()) {
        return Err(ApiError::Forbidden("the Origin is another one than the Host".to_owned()));
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

/// Whether no name server has a say in where the name leads.
fn is_of_this_machine(host: &Authority) -> bool {
    let name = host.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

/// Whether the page that asks came from here.
fn is_same(headers: &HeaderMap, host: Option<&Authority>) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    let (Some(origin), None, Some(host)) = (origins.next(), origins.next(), host) else { return false };
    let Some((scheme, origin)) = origin.to_str().ok().and_then(|origin| origin.split_once("://")) else {
        return false;
    };
    let usual = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return false,
    };
    let Ok(origin) = Authority::try_from(origin) else { return false };
    let port = |authority: &Authority| authority.port_u16().unwrap_or(usual);
    origin.host().eq_ignore_ascii_case(host.host()) && port(&origin) == port(host)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn passes(knows_clients: bool, method: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().method(method).uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let gate = Gate { tokens: None, knows_clients };
        check(&gate, &request.body(Body::empty()).expect("a request")).is_ok()
    }

    #[test]
    fn names_that_lead_here_are_refused_unless_callers_show_who_they_are() {
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
    fn pages_from_elsewhere_are_refused() {
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
