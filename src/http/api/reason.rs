//! Why, and for how long.

use serde::Deserialize;

use super::{error::ApiError, whole::Whole};
use crate::{clock::Clock, control::bounds::MOST_TEXT};

/// Seconds that something may last at the most: ten years.
const LONGEST_S: u64 = 10 * 365 * 86_400;

/// Why something is done. It says something, and not too much.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Reason(pub(super) String);

impl TryFrom<String> for Reason {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.trim_matches(|c: char| c.is_whitespace() || c.is_control()) {
            "" => Err("reason: expected some words".to_owned()),
            words if words.len() > MOST_TEXT => {
                Err(format!("reason: expected {MOST_TEXT} bytes at the most"))
            }
            words => Ok(Self(words.to_owned())),
        }
    }
}

/// When something begins that begins now, in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    Clock::System.now().as_micros() / 1_000
}

/// When something ends that begins then and lasts so many seconds, if it ends at all.
pub(super) fn end(begins_ms: u64, lasts_s: Option<Whole>) -> Result<Option<u64>, ApiError> {
    match lasts_s {
        None => Ok(None),
        Some(Whole(seconds)) if (1..=LONGEST_S).contains(&seconds) => {
            Ok(Some(begins_ms.saturating_add(seconds.saturating_mul(1_000))))
        }
        Some(_) => Err(ApiError::BadRequest(format!("expires_in_s: expected 1 to {LONGEST_S}"))),
    }
}
