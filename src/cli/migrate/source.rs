//! Where the variables of a deployment are read from.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use super::{env_file, manifest};
use crate::settings::EnvironmentSource;

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// How a deployment is run, as far as that was seen. Values may be secrets.
pub(super) struct Deployment {
    /// Where this is from, for people.
    pub(super) source: String,
    /// Its variables.
    pub(super) variables: Vec<(OsString, OsString)>,
    /// What was not seen, for people.
    pub(super) not_seen: Vec<String>,
}

/// Variables that were found in a file.
#[derive(Default)]
pub(super) struct Found {
    /// By name; the last one of a name counts.
    pub(super) variables: BTreeMap<String, String>,
    /// What was not seen, for people.
    pub(super) not_seen: Vec<String>,
    /// Lines that say nothing, by their numbers.
    pub(super) unread: Vec<usize>,
}

/// Why nothing was read. It quotes nothing of the file.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    /// The file can't be read.
    #[error("{path} can't be read: {error}")]
    File {
        /// The file.
        path: String,
        /// Why not.
        error: io::Error,
    },
    /// There are no variables in it.
    #[error("{path} has no variables: expected {expected}")]
    Nothing {
        /// The file.
        path: String,
        /// What was expected.
        expected: &'static str,
    },
    /// All of them are elsewhere, or it could not be read.
    #[error("{path} shows no variable, so that there is nothing to judge by: {}", .not_seen.join("; "))]
    Unseen {
        /// The file.
        path: String,
        /// What was not seen, for people.
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
            let expected = "lines KEY=VALUE, or what `docker inspect` prints";
            found(path, env_file::read(&text(path)?), expected)
        }
        EnvironmentSource::Manifest(path) => {
            let expected = "a container with `env`, or a service of compose with `environment`";
            found(path, manifest::read(&text(path)?), expected)
        }
    }
}

fn found(path: &Path, found: Found, expected: &'static str) -> Result<Deployment, SourceError> {
    let path = path.display().to_string();
    match (found.variables.is_empty(), found.not_seen.is_empty()) {
        (true, true) => return Err(SourceError::Nothing { path, expected }),
        (true, false) => return Err(SourceError::Unseen { path, not_seen: found.not_seen }),
        (false, _) => {}
    }
    let mut not_seen = found.not_seen;
    if let Some(first) = found.unread.first() {
        not_seen.push(format!("{} of its lines are no KEY=VALUE, from line {first} on", found.unread.len()));
    }
    let variables = found.variables.into_iter().map(|(name, value)| (name.into(), value.into()));
    Ok(Deployment { source: path, variables: variables.collect(), not_seen })
}

fn text(path: &Path) -> Result<String, SourceError> {
    let read = || {
        let mut text = String::new();
        // What is no regular file has no length to ask for.
        File::open(path)?.take(MAX_BYTES.saturating_add(1)).read_to_string(&mut text)?;
        match text.len() as u64 {
            0..=MAX_BYTES => Ok(text),
            _ => Err(io::Error::other(format!("it has more than {} MiB", MAX_BYTES >> 20))),
        }
    };
    read().map_err(|error| SourceError::File { path: path.display().to_string(), error })
}
