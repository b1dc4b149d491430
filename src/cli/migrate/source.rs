//! Sources of the variables of a deployment.

use std::{collections::BTreeMap, ffi::OsString, io, path::Path};

use tollgate_runtime::bounded_file;

use super::{env_file, manifest};
use crate::settings::EnvironmentSource;

/// Maximum size of a file.
const MAX_BYTES: u64 = 16 << 20;

/// Variables of a deployment. Values may be secrets.
pub(super) struct Deployment {
    /// Name of the source.
    pub(super) source: String,
    /// Variables with a known value.
    pub(super) variables: Vec<(OsString, OsString)>,
    /// Descriptions of variables with an unknown value.
    pub(super) not_seen: Vec<String>,
}

/// Variables of a file.
#[derive(Default)]
pub(super) struct FileVariables {
    /// Values by name; the last occurrence of a name applies.
    pub(super) variables: BTreeMap<String, String>,
    /// Descriptions of variables with an unknown value.
    pub(super) not_seen: Vec<String>,
    /// Numbers of lines that are not KEY=VALUE.
    pub(super) unread: Vec<usize>,
}

/// Error of a source, without the contents of the file.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    File {
        /// Path of the file.
        path: String,
        /// I/O error.
        error: io::Error,
    },
    /// The file has no variables.
    #[error("{path} has no variables; expected {expected}")]
    Nothing {
        /// Path of the file.
        path: String,
        /// Expected contents.
        expected: &'static str,
    },
    /// No variable has a known value, or the file is not valid.
    #[error("{path} has no variable with a known value: {}", .not_seen.join("; "))]
    Unseen {
        /// Path of the file.
        path: String,
        /// Descriptions of variables with an unknown value.
        not_seen: Vec<String>,
    },
}

/// Reads the variables of a deployment.
pub(super) fn read(source: &EnvironmentSource) -> Result<Deployment, SourceError> {
    match source {
        EnvironmentSource::Process(variables) => Ok(Deployment {
            source: "the environment of this process".to_owned(),
            variables: variables.clone(),
            not_seen: Vec::new(),
        }),
        EnvironmentSource::File(path) => {
            let expected = "lines KEY=VALUE, or the output of `docker inspect`";
            found(path, env_file::read(&text(path)?), expected)
        }
        EnvironmentSource::Manifest(path) => {
            let expected = "a container with `env`, or a compose service with `environment`";
            found(path, manifest::read(&text(path)?), expected)
        }
    }
}

fn found(path: &Path, found: FileVariables, expected: &'static str) -> Result<Deployment, SourceError> {
    let path = path.display().to_string();
    match (found.variables.is_empty(), found.not_seen.is_empty()) {
        (true, true) => return Err(SourceError::Nothing { path, expected }),
        (true, false) => return Err(SourceError::Unseen { path, not_seen: found.not_seen }),
        (false, _) => {}
    }
    let mut not_seen = found.not_seen;
    if let Some(first) = found.unread.first() {
        not_seen.push(format!("{} lines that are not KEY=VALUE, from line {first} on", found.unread.len()));
    }
    let variables = found.variables.into_iter().map(|(name, value)| (name.into(), value.into()));
    Ok(Deployment { source: path, variables: variables.collect(), not_seen })
}

fn text(path: &Path) -> Result<String, SourceError> {
    bounded_file::read_text(path, MAX_BYTES)
        .map_err(|error| SourceError::File { path: path.display().to_string(), error })
}
