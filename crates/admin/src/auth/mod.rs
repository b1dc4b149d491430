//! Authentication and roles of the admin port, and protection against requests that a web page of another origin makes an
//! operator's browser send.
//!
//! Where callers need no credentials, any page that an operator has open could send requests to this port. Three checks
//! prevent that:
//! - Changes require a JSON body (`http/origin.rs`) or the method DELETE. A page can send neither without a CORS
//!   preflight request, which never succeeds, as no response has CORS headers.
//! - Without credentials, requests with a host name other than `localhost` are refused: an attacker's name may resolve to
//!   this address (DNS rebinding).
//! - Requests whose `Origin` differs from their `Host` are refused.

mod tokens;

use std::{sync::Arc, time::Duration};

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tollgate_control::is_like_system_author;
use tollgate_metrics::{CounterFamily, Metric};
use tollgate_runtime::{log_budget::LogBudget, redact::is_printable};
use tollgate_serve::http::origin::{host, is_address_or_localhost, is_cross_origin};

use crate::api::ApiError;
use crate::caller::{Caller, Role};

pub use self::tokens::Tokens;

/// The header in which callers state their name where no tokens are configured.
const AUTHOR_HEADER: &str = "tollgate-author";

const MAX_AUTHOR_BYTES: usize = 64;

/// The name of a caller that states none.
const ANONYMOUS: &str = "anonymous";

/// Credentials that callers of the admin port need.
#[derive(Clone, Debug)]
pub(super) struct Authenticator {
    /// Accepted tokens; without them, every caller that reaches the port is an operator.
    pub(super) tokens: Option<Tokens>,
    /// Whether the port requires client certificates.
    pub(super) requires_client_certificate: bool,
}

impl Authenticator {
    fn caller(&self, request: &Request) -> Option<Caller> {
        match &self.tokens {
            None => Some(Caller { name: author(request.headers()), role: Role::Operator }),
            Some(tokens) => {
                let header = request.headers().get(AUTHORIZATION)?;
                tokens.caller(bearer(header.as_bytes())?)
            }
        }
    }
}

/// Adds the [`Caller`] to the request's extensions, or responds with 401.
pub(super) async fn authenticate(
    State(auth): State<Authenticator>,
    mut request: Request,
    next: Next,
) -> Response {
    match auth.caller(&request) {
        Some(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        None => {
            refused(request.headers().contains_key(AUTHORIZATION));
            ([(WWW_AUTHENTICATE, "Bearer")], ApiError::Unauthorized).into_response()
        }
    }
}

/// The token of an `Authorization` header.
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token.trim_ascii())
}

/// The name that a caller states: the printable characters of the header, cut at 64 bytes. Not that of the system.
fn author(headers: &HeaderMap) -> Arc<str> {
    let stated = headers.get(AUTHOR_HEADER).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let mut name = String::new();
    let printable = |c: &char| is_printable(*c) && *c != char::REPLACEMENT_CHARACTER;
    for c in stated.as_deref().unwrap_or_default().trim().chars().filter(printable) {
        if name.len() + c.len_utf8() > MAX_AUTHOR_BYTES {
            break;
        }
        name.push(c);
    }
    match name.trim() {
        name if name.is_empty() || is_like_system_author(name) => ANONYMOUS.into(),
        name => name.into(),
    }
}

/// Refuses requests that may come from a page of another origin.
pub(super) async fn refuse_other_origins(
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
    // Without credentials, a browser sends requests of another origin's page too.
    let is_open = auth.tokens.is_none() && !auth.requires_client_certificate;
    if is_open && !host.as_ref().is_some_and(is_address_or_localhost) {
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

/// Metrics of the authentication.
pub static METRICS: &[&dyn Metric] = &[&UNAUTHORIZED];

static UNAUTHORIZED: CounterFamily<1> = CounterFamily::starting_with(
    "tollgate_admin_unauthorized_total",
    &["token"],
    "Requests to the admin port that were refused because of their token.",
    &[["missing"], ["wrong"]],
);

/// Log lines on wrong tokens: who guesses them could fill the log.
static WRONG_TOKEN_LINES: LogBudget = LogBudget::new(5, Duration::from_secs(60));

/// Counts a request that was refused, and logs it if it has a token.
fn refused(has_token: bool) {
    UNAUTHORIZED.increment([if has_token { "wrong" } else { "missing" }]);
    if has_token && let Some(suppressed) = WRONG_TOKEN_LINES.take() {
        tracing::warn!(suppressed, "admin request with a wrong token refused");
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::HeaderValue};

    use super::*;

    #[test]
    fn a_token_follows_its_scheme() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Basic abcdef"), None);
        assert_eq!(bearer(b"abc"), None);
    }

    #[test]
    fn an_author_is_printable_and_of_bounded_length() {
        let named = |bytes: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHOR_HEADER, HeaderValue::from_bytes(bytes).expect("a header"));
            author(&headers).to_string()
        };
        assert_eq!(&*author(&HeaderMap::new()), "anonymous");
        assert_eq!((named(b" "), named(b" ann ")), ("anonymous".to_owned(), "ann".to_owned()));
        assert_eq!(named(b"an\tn\xff"), "ann");
        assert_eq!(named("Toll\u{200b}gate".as_bytes()), "anonymous");
        assert_eq!(named("an\u{202e}n\u{feff}".as_bytes()), "ann");
        assert_eq!(named("é".repeat(40).as_bytes()), "é".repeat(32));
    }

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
