//! Sources of the variables of a deployment.

use std::{ffi::OsString, path::Path};

use tollgate::bounded_file;

use crate::env_file::{self, FileVariables};
use crate::{MigrateFlags, manifest};

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

/// Reads the variables of a deployment: of a file, or `environment`. Errors have no contents of the file.
pub(super) fn read(
    flags: &MigrateFlags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Deployment, String> {
    if let Some(path) = &flags.env_file {
        let expected = "lines KEY=VALUE, or the output of `docker inspect`";
        return found(path, env_file::read(&text(path)?), expected);
    }
    if let Some(path) = &flags.manifest {
        let expected = "a container with `env`, or a compose service with `environment`";
        return found(path, manifest::read(&text(path)?), expected);
    }
    Ok(Deployment {
        source: "the environment of this process".to_owned(),
        variables: environment.into_iter().collect(),
        not_seen: Vec::new(),
    })
}

fn found(path: &Path, found: FileVariables, expected: &str) -> Result<Deployment, String> {
    let path = path.display().to_string();
    let mut not_seen = found.not_seen;
    if found.variables.is_empty() {
        return Err(match &*not_seen {
            [] => format!("{path} has no variables; expected {expected}"),
            not_seen => format!("{path} has no variable with a known value: {}", not_seen.join("; ")),
        });
    }
    if let Some(first) = found.unread.first() {
        not_seen.push(format!("{} lines that are not KEY=VALUE, from line {first} on", found.unread.len()));
    }
    let variables = found.variables.into_iter().map(|(name, value)| (name.into(), value.into()));
    Ok(Deployment { source: path, variables: variables.collect(), not_seen })
}

fn text(path: &Path) -> Result<String, String> {
    let text = bounded_file::read_text(path, MAX_BYTES);
    text.map_err(|error| format!("cannot read {}: {error}", path.display()))
}
