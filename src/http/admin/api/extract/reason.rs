//! The `reason` and `expires_in_s` fields of a change.

use serde::Deserialize;
use tollgate_control::bounds::MAX_TEXT_BYTES;
use tollgate_core::clock::Clock;

use super::Integer;
use crate::http::admin::api::error::ApiError;

/// The longest lifetime of a list entry or switch, in seconds: ten years.
const MAX_LIFETIME_S: u64 = 10 * 365 * 86_400;

/// The reason of a change: not blank, and of bounded length.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(in crate::http::admin::api) struct Reason(pub(in crate::http::admin::api) String);

impl TryFrom<String> for Reason {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.trim_matches(|c: char| c.is_whitespace() || c.is_control()) {
            "" => Err("reason: expected text".to_owned()),
            text if text.len() > MAX_TEXT_BYTES => {
                Err(format!("reason: expected at most {MAX_TEXT_BYTES} bytes"))
            }
            text => Ok(Self(text.to_owned())),
        }
    }
}

/// The current time in milliseconds since 1970.
pub(in crate::http::admin::api) fn now_ms() -> u64 {
    Clock::System.now().as_micros() / 1_000
}

/// The expiry time of a change made at `created_at_ms`; `None` for one that does not expire.
pub(in crate::http::admin::api) fn expires_at(
    created_at_ms: u64,
    expires_in_s: Option<Integer>,
) -> Result<Option<u64>, ApiError> {
    match expires_in_s {
        None => Ok(None),
        Some(Integer(seconds)) if (1..=MAX_LIFETIME_S).contains(&seconds) => {
            Ok(Some(created_at_ms.saturating_add(seconds.saturating_mul(1_000))))
        }
        Some(_) => Err(ApiError::BadRequest(format!("expires_in_s: expected 1 to {MAX_LIFETIME_S}"))),
    }
}
