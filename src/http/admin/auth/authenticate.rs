//! Authentication middleware.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{
        HeaderMap,
        header::{AUTHORIZATION, WWW_AUTHENTICATE},
    },
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use tollgate_control::is_like_system_author;
use tollgate_runtime::redact::is_printable;

use super::{
    metrics,
    roles::{Caller, Role},
    tokens::Tokens,
};
use crate::http::admin::api::ApiError;

/// The header in which callers state their name where no tokens are configured.
const AUTHOR_HEADER: &str = "tollgate-author";

const MAX_AUTHOR_BYTES: usize = 64;

/// The name of a caller that states none.
const ANONYMOUS: &str = "anonymous";

/// Credentials that callers of the admin port need.
#[derive(Clone, Debug)]
pub(in crate::http) struct Authenticator {
    /// Accepted tokens; without them, every caller that reaches the port is an operator.
    pub(in crate::http) tokens: Option<Tokens>,
    /// Whether the port requires client certificates.
    pub(in crate::http) requires_client_certificate: bool,
}

impl Authenticator {
    /// Whether callers need any credentials. A browser sends requests of another origin's page without a token.
    pub(in crate::http) const fn requires_credentials(&self) -> bool {
        self.tokens.is_some() || self.requires_client_certificate
    }

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
pub(in crate::http) async fn authenticate(
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
            metrics::refused(request.headers().contains_key(AUTHORIZATION));
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
        if name.len().saturating_add(c.len_utf8()) > MAX_AUTHOR_BYTES {
            break;
        }
        name.push(c);
    }
    match name.trim() {
        name if name.is_empty() || is_like_system_author(name) => ANONYMOUS.into(),
        name => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

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
}
