//! Protection against requests that a web page of another origin makes an operator's browser send.
//!
//! Where callers need no credentials, any page that an operator has open could send requests to this port. Three checks
//! prevent that:
//! - Changes require a JSON body (`http/origin.rs`) or the method DELETE. A page can send neither without a CORS
//!   preflight request, which never succeeds, as no response has CORS headers.
//! - Without credentials, requests with a host name other than `localhost` are refused: an attacker's name may resolve to
//!   this address (DNS rebinding).
//! - Requests whose `Origin` differs from their `Host` are refused.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::error::ApiError;
use crate::http::{
    admin::auth::Authenticator,
    origin::{host, is_address_or_localhost, is_cross_origin},
};

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
    let host = host(request);
    if !auth.requires_credentials() && !host.as_ref().is_some_and(is_address_or_localhost) {
        let message = "untrusted Host; without a token, expected an IP address or localhost";
        return Err(ApiError::Forbidden(message.to_owned()));
    }
    if is_cross_origin(request, host.as_ref()) {
        return Err(ApiError::Forbidden(
            "cross-origin request; expected an Origin equal to the Host".to_owned(),
        ));
    }
    Ok(())
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
