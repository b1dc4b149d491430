//! What callers send.

use std::{sync::Arc, time::Duration};

use axum::{
    body::BodyDataStream,
    extract::{FromRequest, Request},
    http::{HeaderMap, header::CONTENT_TYPE},
};
use futures_util::StreamExt as _;
use serde::de::DeserializeOwned;
use tokio::{task::spawn_blocking, time::timeout};

use super::{
    error::ApiError,
    heavy::{Lane, Turn},
    parts::Api,
};
use crate::{control::bounds::MOST_BYTES, http::access::Caller};

/// Bytes of the largest body: the files of the largest version, escaped to three times as much, and what is around them.
pub(super) const LARGEST: usize = 3 * MOST_BYTES + SMALL;

/// Bytes up to which a body needs no turn.
const SMALL: usize = 64 << 10;

/// How long a body that has its turn may take to come: others wait for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// A body in JSON, every field of which is known, and the turn to be kept as long as anything of it is. That it has to say
/// what it is keeps out what pages from elsewhere send.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T, pub(super) Option<Turn>);

/// Noted with a request that changes something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changes;

/// Whether there is more of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Nothing,
    More,
}

impl<T: DeserializeOwned + Send + 'static> FromRequest<Arc<Api>> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, ApiError> {
        if !is_json(request.headers()) {
            return Err(ApiError::ContentType);
        }
        let (parts, body) = request.into_parts();
        let caller = parts.extensions.get::<Caller>().ok_or(ApiError::Unauthorized)?;
        let is_change = parts.extensions.get::<Changes>().is_some();
        let lane = if is_change { Lane::Change } else { Lane::Look(caller) };
        let (mut pieces, mut text) = (body.into_data_stream(), Vec::new());
        if fill(&mut pieces, &mut text, SMALL).await? == Rest::Nothing {
            return parse(&text).map(|value| Self(value, None));
        }
        // Who sends nothing more holds up nobody so far.
        let turn = api.turns.body(lane).await?;
        let filled = timeout(PATIENCE, fill(&mut pieces, &mut text, LARGEST)).await;
        if filled.map_err(|_| ApiError::Slow(PATIENCE))?? == Rest::More {
            drop(turn);
            let _ = timeout(PATIENCE, discard(pieces)).await;
            return Err(ApiError::TooLarge);
        }
        let parsed = spawn_blocking(move || parse(&text).map(|value| Self(value, Some(turn))));
        parsed.await.map_err(|_| ApiError::Broken)?
    }
}

/// Takes pieces until there are more bytes than that, or all.
async fn fill(pieces: &mut BodyDataStream, text: &mut Vec<u8>, most: usize) -> Result<Rest, ApiError> {
    while text.len() <= most {
        let Some(piece) = pieces.next().await else { return Ok(Rest::Nothing) };
        let piece = piece.map_err(|_| ApiError::BadRequest("the body breaks off".to_owned()))?;
        text.extend_from_slice(&piece);
    }
    Ok(Rest::More)
}

/// Takes what comes after too much, as much again at the most: who still sends when the connection is closed does not
/// hear why.
async fn discard(mut pieces: BodyDataStream) {
    let mut most = LARGEST;
    while let Some(Ok(piece)) = pieces.next().await {
        let Some(rest) = most.checked_sub(piece.len()) else { return };
        most = rest;
    }
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(text).map_err(|error| ApiError::BadRequest(error.to_string()))
}

/// Whether a request says that its body is JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let stated = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = stated.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_said_to_be_that() {
        let said = |kind: &'static str| {
            is_json(&HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().expect("a value"))]))
        };
        assert!(said("application/json") && said("Application/JSON; charset=utf-8"));
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "",
            "multipart/form-data",
            "application/jsonp",
        ] {
            assert!(!said(kind), "{kind}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
