//! Lets in who shows a token, where one is wanted.

use axum::{
    extract::{Request, State},
    http::header::{AUTHORIZATION, WWW_AUTHENTICATE},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::{
    author::author,
    caller::{Caller, Role},
    tokens::Tokens,
};
use crate::http::api::ApiError;

/// What callers of the admin port have to show.
#[derive(Clone, Debug)]
pub(in crate::http) struct Gate {
    /// The tokens; without them, whoever gets here may do anything.
    pub(in crate::http) tokens: Option<Tokens>,
    /// Whether the port wants clients' certificates.
    pub(in crate::http) knows_clients: bool,
}

impl Gate {
    /// Whether callers have to show anything at all: what a browser does by itself, for a page from elsewhere, it does
    /// without a token.
    pub(in crate::http) const fn is_guarded(&self) -> bool {
        self.tokens.is_some() || self.knows_clients
    }

    fn caller(&self, request: &Request) -> Option<Caller> {
        match &self.tokens {
            None => Some(Caller { name: author(request.headers()), role: Role::Operator }),
            Some(tokens) => {
                let header = request.headers().get(AUTHORIZATION)?;
                tokens.holder(bearer(header.as_bytes())?)
            }
        }
    }
}

/// Notes with the request who asks, or refuses it.
pub(in crate::http) async fn authenticate(
    State(gate): State<Gate>,
    mut request: Request,
    next: Next,
) -> Response {
    match gate.caller(&request) {
        Some(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        None => ([(WWW_AUTHENTICATE, "Bearer")], ApiError::Unauthorized).into_response(),
    }
}

/// The token of an `Authorization` header.
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_stands_behind_its_scheme() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Basic abcdef"), None);
        assert_eq!(bearer(b"abc"), None);
    }
}
