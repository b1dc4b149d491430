//! Rule files: those of a version, or of the rules directory where the rules have no versions, and those in requests.

use std::{collections::btree_map::Entry, fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use tollgate_control::{Files, RulesSource, Version, bounds::check_files};
use tollgate_rules::{
    Rules,
    config::{self, LoadError, Loaded, Options},
};
use tollgate_runtime::redact::is_printable;

use super::{
    Api,
    extract::VersionSelector,
    limits::{self, Lane},
    response::{ApiError, Invalid},
};

/// Rule files, and the version that they belong to, if any.
#[derive(Debug)]
pub(super) struct RuleFiles {
    pub(super) version: Option<Version>,
    pub(super) files: Files,
}

impl RuleFiles {
    /// The number of the version.
    pub(super) fn number(&self) -> Option<u64> {
        self.version.as_ref().map(|version| version.number)
    }
}

/// Reads the files of a version. The current one has none before the first version is applied.
pub(super) async fn read(
    api: &Api,
    lane: Lane<'_>,
    selector: VersionSelector,
) -> Result<RuleFiles, ApiError> {
    match selector {
        VersionSelector::Current if api.parts.status.now().source == RulesSource::Xds => {
            Err(ApiError::NotFound("the rules come from an xDS control plane and have no files".to_owned()))
        }
        VersionSelector::Current if !api.has_versions() => read_directory(api, lane).await,
        VersionSelector::Current => match limits::read(api.parts.control.current()).await? {
            Some(number) => read_version(api, number).await,
            None => Ok(RuleFiles { version: None, files: Files::new() }),
        },
        VersionSelector::Number(number) => read_version(api, number).await,
    }
}

async fn read_version(api: &Api, number: u64) -> Result<RuleFiles, ApiError> {
    match limits::read(api.parts.control.version(number)).await? {
        Some((version, files)) => Ok(RuleFiles { version: Some(version), files }),
        None => Err(ApiError::NotFound(format!("version {number} does not exist or has been pruned"))),
    }
}

async fn read_directory(api: &Api, lane: Lane<'_>) -> Result<RuleFiles, ApiError> {
    let directory = api.parts.directory.clone();
    let read = api.limits.scan(lane, move || config::read(&directory)).await?;
    let files = read.map_err(|error| {
        tracing::warn!(%error, "failed to read the rules directory");
        ApiError::NotFound("failed to read the rules directory; see the server log".to_owned())
    })?;
    Ok(RuleFiles { version: None, files })
}

/// The current rules, if any. Usually the active rules of this instance; the rules of the current version if that one is
/// not active here yet.
pub(super) async fn current_rules(api: &Api, lane: Lane<'_>) -> Result<Option<Arc<Rules>>, ApiError> {
    let active = api.parts.rules.load();
    if !api.has_versions() {
        return Ok(active);
    }
    let current = limits::read(api.parts.control.current()).await?;
    if current == api.parts.status.now().version {
        return Ok(active);
    }
    let Some(number) = current else { return Ok(None) };
    let RuleFiles { files, .. } = read_version(api, number).await?;
    let options = api.parts.options;
    let loaded = api.limits.load(lane, move || load(&files, options)).await?;
    Ok(loaded.map_or(active, |loaded| Some(Arc::new(loaded.rules))))
}

const MAX_FILES: usize = 1_000;

const MAX_NAME_BYTES: usize = 255;

/// Rule files by name. Duplicate names are refused.
#[derive(Debug)]
pub(super) struct DraftFiles(pub(super) Files);

impl<'de> Deserialize<'de> for DraftFiles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FilesVisitor;
        impl<'de> Visitor<'de> for FilesVisitor {
            type Value = Files;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of file contents by file name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Files, A::Error> {
                let mut files = Files::new();
                while let Some((name, text)) = map.next_entry()? {
                    match files.entry(name) {
                        Entry::Vacant(entry) => drop(entry.insert(text)),
                        Entry::Occupied(entry) => {
                            return Err(A::Error::custom(format!("duplicate file {}", entry.key())));
                        }
                    }
                    if files.len() > MAX_FILES {
                        return Err(A::Error::custom(format!("expected at most {MAX_FILES} files")));
                    }
                }
                Ok(files)
            }
        }
        deserializer.deserialize_map(FilesVisitor).map(Self)
    }
}

/// Loads files as from a directory. Slow for many files.
pub(super) fn load(files: &Files, options: Options) -> Result<Loaded, Invalid> {
    if let Some(name) = files.keys().find(|name| !is_name(name)) {
        let expected = "expected a relative path below the rules directory that ends in .yaml or .yml";
        return Err(Invalid::of_file(name, expected));
    }
    let contents = files.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes()));
    config::load_files(contents, options).map_err(|error: LoadError| Invalid::from(&error))
}

/// Loads files; invalid ones are an API error.
pub(super) fn load_valid(files: &Files, options: Options) -> Result<Loaded, ApiError> {
    load(files, options).map_err(|invalid| ApiError::Invalid(Box::new(invalid)))
}

/// Loads files of a version to be, whose size is bounded.
pub(super) fn load_version(files: &Files, options: Options) -> Result<Loaded, Invalid> {
    match (check_files(files), files.iter().max_by_key(|(_, text)| text.len())) {
        (Err(error), Some((name, _))) => Err(Invalid::of_file(name, &error.to_string())),
        _ => load(files, options),
    }
}

/// Whether this is the relative path of a file that would be loaded from a directory.
fn is_name(name: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.');
    let is_forbidden = |c: char| !is_printable(c) || c == '\\';
    name.len() <= MAX_NAME_BYTES
        && (name.ends_with(".yaml") || name.ends_with(".yml"))
        && name.split('/').all(is_part)
        && !name.contains(is_forbidden)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn only_relative_paths_of_yaml_files_are_accepted() {
        for name in ["a.yaml", "a.yml", "teams/search.yaml", "a b.yaml", "ä.yaml"] {
            assert!(is_name(name), "{name}");
        }
        for name in
            ["", "a", ".yaml", "/a.yaml", "../a.yaml", "a/../b.yaml", "a//b.yaml", ".a/b.yaml", "a\\b.yaml"]
        {
            assert!(!is_name(name), "{name}");
        }
        assert!(!is_name("a\n.yaml") && !is_name(&format!("{}.yaml", "x".repeat(MAX_NAME_BYTES))));
    }

    #[test]
    fn duplicate_names_are_refused() {
        let read = |text: &str| serde_json::from_str::<DraftFiles>(text).map(|files| files.0.len());
        assert_eq!(read(r#"{"a.yaml": "", "b.yaml": ""}"#).ok(), Some(2));
        assert!(read(r#"{"a.yaml": "", "a.yaml": ""}"#).is_err());
        assert!(read(r#"{"a.yaml": 1}"#).is_err());
    }
}
