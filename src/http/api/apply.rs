//! `POST /versions` and `POST /versions/{n}/rollback`: another version becomes current.

use std::sync::Arc;

use axum::{Extension, extract::State};
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::{
    answer::{self, Answer},
    body::Body,
    draft::{self, DraftFiles},
    error::ApiError,
    heavy::Lane,
    parts::Api,
    query::{Named, Which},
    safety, wait,
    whole::Whole,
};
use crate::{
    control::{ControlError, Draft, Files, Version, bounds::check_files},
    http::access::Caller,
};

/// How often a rollback that is not based on a version is tried, while others make versions.
const ATTEMPTS: usize = 3;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Apply {
    /// To be said, though it may be `null`.
    #[serde(deserialize_with = "Option::deserialize")]
    based_on: Option<Whole>,
    files: DraftFiles,
    comment: String,
    #[serde(default)]
    force: Force,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rollback {
    based_on: Option<Whole>,
    #[serde(default)]
    comment: String,
    #[serde(default)]
    force: Force,
}

/// Whether what is likely a mistake is made all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Force {
    #[default]
    Refuse,
    Make,
}

impl<'de> Deserialize<'de> for Force {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(if bool::deserialize(deserializer)? { Self::Make } else { Self::Refuse })
    }
}

/// Makes a version of these files and makes it current.
pub(super) async fn apply(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Body(asked, _held): Body<Apply>,
) -> Answer {
    api.must_be_editable()?;
    let files = Arc::new(asked.files.0);
    api.may_apply(&files, asked.force).await?;
    let draft = Draft {
        files: Arc::unwrap_or_clone(files),
        based_on: asked.based_on.map(|Whole(number)| number),
        rollback_to: None,
        author: caller.name.to_string(),
        comment: asked.comment,
    };
    made(&wait::write(api.parts.control.apply(draft)).await?)
}

/// Makes the files of an earlier version current again.
pub(super) async fn rollback(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Named(number): Named<u64>,
    Body(asked, _held): Body<Rollback>,
) -> Answer {
    api.must_be_editable()?;
    let files = Arc::new(api.files(Lane::Change, Which::Number(number)).await?.files);
    let mut attempts = if asked.based_on.is_some() { 1 } else { ATTEMPTS };
    loop {
        api.may_apply(&files, asked.force).await?;
        let based_on = match asked.based_on {
            Some(Whole(number)) => Some(number),
            None => wait::read(api.parts.control.current()).await?,
        };
        let draft = Draft {
            files: Files::clone(&files),
            based_on,
            rollback_to: Some(number),
            author: caller.name.to_string(),
            comment: asked.comment.clone(),
        };
        attempts = attempts.saturating_sub(1);
        match wait::write(api.parts.control.apply(draft)).await {
            Err(ControlError::Stale { .. }) if attempts > 0 => {}
            applied => return made(&applied?),
        }
    }
}

fn made(version: &Version) -> Answer {
    answer::created(&json!({ "version": version }))
}

impl Api {
    /// Whether these files may become current: they are valid, and no mistake as far as can be seen.
    async fn may_apply(&self, files: &Arc<Files>, force: Force) -> Result<(), ApiError> {
        let (options, files) = (self.parts.options, Arc::clone(files));
        let compared = match force {
            Force::Make => None,
            Force::Refuse => Some((self.current_rules(Lane::Change).await?, self.traffic().await?)),
        };
        let judged = self.turns.load(Lane::Change, move || {
            check_files(&files)?;
            let loaded = draft::load_valid(&files, options)?;
            let reasons = compared
                .map(|(current, traffic)| safety::reasons(current.as_deref(), &loaded.rules, &traffic));
            match reasons.unwrap_or_default() {
                reasons if reasons.is_empty() => Ok(()),
                reasons => Err(ApiError::NeedsForce(reasons)),
            }
        });
        judged.await?
    }
}
