//! Query and path parameters.

use axum::{
    extract::{FromRequestParts, Path, Query},
    http::request::Parts,
};
use serde::{Deserialize, de::DeserializeOwned};

use crate::http::admin::api::error::ApiError;

/// Query parameters. Unknown ones are refused by the types, which deny unknown fields.
#[derive(Debug)]
pub(in crate::http::admin::api) struct QueryParams<T>(pub(in crate::http::admin::api) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(query)| Self(query)).map_err(|error| ApiError::BadRequest(error.body_text()))
    }
}

/// A path parameter.
#[derive(Debug)]
pub(in crate::http::admin::api) struct PathParam<T>(pub(in crate::http::admin::api) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParam<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::from_request_parts(parts, state).await;
        path.map(|Path(path)| Self(path)).map_err(|error| ApiError::BadRequest(error.body_text()))
    }
}

/// A page of a log: at most `limit` items before the one with the id `before`, newest first.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http::admin::api) struct LogQuery {
    pub(in crate::http::admin::api) before: Option<String>,
    limit: Option<usize>,
}

impl LogQuery {
    /// The number of items to return.
    pub(in crate::http::admin::api) fn limit(&self) -> Result<usize, ApiError> {
        page_size(self.limit, 100, 1_000)
    }
}

/// Rules of a domain, or of all, and with a path, or with any.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http::admin::api) struct RuleQuery {
    domain: Option<String>,
    rule: Option<String>,
}

impl RuleQuery {
    pub(in crate::http::admin::api) fn selects(&self, domain: &str, rule: &str) -> bool {
        self.domain.as_deref().is_none_or(|wanted| wanted == domain)
            && self.rule.as_deref().is_none_or(|wanted| wanted == rule)
    }
}

/// A version: by its number, or the current one.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(in crate::http::admin::api) enum VersionSelector {
    Current,
    Number(u64),
}

impl TryFrom<String> for VersionSelector {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        match text.as_str() {
            "current" => Ok(Self::Current),
            // No sign, no leading zeros: each number has one notation.
            number => match number.parse::<u64>() {
                Ok(parsed) if parsed.to_string() == number => Ok(Self::Number(parsed)),
                _ => Err("expected a version number or `current`"),
            },
        }
    }
}

/// The number of items to return: `requested`, or `default` without it; from 1 to `max`.
pub(in crate::http::admin::api) fn page_size(
    requested: Option<usize>,
    default: usize,
    max: usize,
) -> Result<usize, ApiError> {
    match requested {
        None => Ok(default),
        Some(limit) if (1..=max).contains(&limit) => Ok(limit),
        Some(_) => Err(ApiError::BadRequest(format!("limit: expected a number from 1 to {max}"))),
    }
}
