//! What callers say in the address.

use axum::{
    extract::{FromRequestParts, Path, Query},
    http::request::Parts,
};
use serde::{Deserialize, de::DeserializeOwned};

use super::error::ApiError;

/// Parameters behind the `?`, every one of which is known.
#[derive(Debug)]
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let asked = Query::from_request_parts(parts, state).await;
        asked.map(|Query(asked)| Self(asked)).map_err(|error| ApiError::BadRequest(error.body_text()))
    }
}

/// A part of the path.
#[derive(Debug)]
pub(super) struct Named<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let named = Path::from_request_parts(parts, state).await;
        named.map(|Path(named)| Self(named)).map_err(|error| ApiError::BadRequest(error.body_text()))
    }
}

/// A version: by its number, or the current one.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(super) enum Which {
    Current,
    Number(u64),
}

impl TryFrom<String> for Which {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        match text.as_str() {
            "current" => Ok(Self::Current),
            // No sign, and no other way to write the same number.
            number => match number.parse::<u64>() {
                Ok(found) if found.to_string() == number => Ok(Self::Number(found)),
                _ => Err("expected the number of a version, or current"),
            },
        }
    }
}

/// How many are wanted: `default` unless said, at least one and at most `most`.
pub(super) fn amount(said: Option<usize>, default: usize, most: usize) -> Result<usize, ApiError> {
    match said {
        None => Ok(default),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(_) => Err(ApiError::BadRequest(format!("limit: expected a number from 1 to {most}"))),
    }
}
