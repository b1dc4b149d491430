//! Versions and their files, where there are versions; else the directory's files.

use std::sync::Arc;

use super::{draft, error::ApiError, heavy::Lane, parts::Api, query::Which, wait};
use crate::{
    config,
    control::{ControlError, Files, RulesSource, Version},
    rules::Rules,
};

/// Files, and the version that they are, if they are one.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) version: Option<Version>,
    pub(super) files: Files,
}

impl Found {
    pub(super) fn number(&self) -> Option<u64> {
        self.version.as_ref().map(|version| version.number)
    }
}

impl Api {
    /// Whether the rules have versions, which are made here.
    pub(super) fn is_editable(&self) -> bool {
        self.parts.status.now().source.has_versions()
    }

    /// That, as an error.
    pub(super) fn must_be_editable(&self) -> Result<(), ApiError> {
        match self.is_editable() {
            true => Ok(()),
            false => Err(ControlError::ReadOnly.into()),
        }
    }

    /// The files of a version. Of the current one there are none before the first.
    pub(super) async fn files(&self, lane: Lane<'_>, which: Which) -> Result<Found, ApiError> {
        match which {
            Which::Current if self.parts.status.now().source == RulesSource::Xds => {
                Err(ApiError::NotFound("the rules come from a control plane, which has no files".to_owned()))
            }
            Which::Current if !self.is_editable() => self.directory(lane).await,
            Which::Current => match wait::read(self.parts.control.current()).await? {
                Some(number) => self.numbered(number).await,
                None => Ok(Found { version: None, files: Files::new() }),
            },
            Which::Number(number) => self.numbered(number).await,
        }
    }

    async fn numbered(&self, number: u64) -> Result<Found, ApiError> {
        match wait::read(self.parts.control.version(number)).await? {
            Some((version, files)) => Ok(Found { version: Some(version), files }),
            None => {
                Err(ApiError::NotFound(format!("there is no version {number}, or it is not kept any more")))
            }
        }
    }

    async fn directory(&self, lane: Lane<'_>) -> Result<Found, ApiError> {
        let directory = self.parts.directory.clone();
        let read = self.turns.look(lane, move || config::read(&directory)).await?;
        let files = read.map_err(|error| {
            tracing::warn!("asked for the rules' files: {error}");
            ApiError::NotFound("the directory of the rules can't be read; the log says why".to_owned())
        })?;
        Ok(Found { version: None, files })
    }

    /// The rules that are current, if there are any: mostly those in force here. Where another version is current by now,
    /// those of its files.
    pub(super) async fn current_rules(&self, lane: Lane<'_>) -> Result<Option<Arc<Rules>>, ApiError> {
        let in_force = self.parts.rules.load();
        if !self.is_editable() {
            return Ok(in_force);
        }
        let current = wait::read(self.parts.control.current()).await?;
        if current == self.parts.status.now().version {
            return Ok(in_force);
        }
        let Some(number) = current else { return Ok(None) };
        let Found { files, .. } = self.numbered(number).await?;
        let options = self.parts.options;
        let loaded = self.turns.load(lane, move || draft::load(&files, options)).await?;
        Ok(loaded.map_or(in_force, |loaded| Some(Arc::new(loaded.rules))))
    }
}
