//! Versions as text, and as files of a directory.

use std::{
    fs, io,
    path::{Component, Path},
};

use serde::Deserialize;
use tollgate_control::{Files, Version};
use tollgate_runtime::bounded_file;

use super::{
    error::ClientError,
    text::{escape, escape_line, table, utc},
};

/// File with the number of the version that the other files were made from. Hidden, so that it is not loaded as rules.
const VERSION_FILE: &str = ".tollgate-version";

/// The latest versions, and the number of the current one.
#[derive(Debug, Deserialize)]
pub(super) struct VersionList {
    pub(super) current: Option<u64>,
    versions: Vec<Version>,
}

/// A version, unless the files come from a directory, and its files.
#[derive(Debug, Deserialize)]
pub(super) struct VersionFiles {
    version: Option<Version>,
    files: Files,
}

impl VersionList {
    pub(super) fn to_text(&self) -> String {
        if self.versions.is_empty() {
            return "there is no version yet\n".to_owned();
        }
        let rows = self.versions.iter().map(|version| {
            let number = version.number.to_string();
            let current = if Some(version.number) == self.current { "current" } else { "" };
            let comment = match (version.rollback_to, version.comment.trim()) {
                (Some(to), "") => format!("back to {to}"),
                (Some(to), comment) => format!("back to {to}: {comment}"),
                (None, comment) => comment.to_owned(),
            };
            let made = utc(version.created_at_ms);
            [number, current.to_owned(), made, escape_line(&version.author), escape_line(&comment)]
        });
        table(["VERSION", "", "CREATED", "AUTHOR", "COMMENT"], &rows.collect::<Vec<_>>())
    }
}

impl VersionFiles {
    pub(super) fn to_text(&self) -> String {
        let files = self.files.iter().map(|(name, text)| {
            let end = if text.ends_with('\n') { "" } else { "\n" };
            format!("# {}\n{}{end}", escape_line(name), escape(text))
        });
        std::iter::once(self.head()).chain(files).collect()
    }

    fn head(&self) -> String {
        match &self.version {
            None => "# the rules come from a directory\n".to_owned(),
            Some(version) => {
                let (made, author) = (utc(version.created_at_ms), escape_line(&version.author));
                format!(
                    "# version {}, made {made} by {author}: {}\n",
                    version.number,
                    escape_line(&version.comment)
                )
            }
        }
    }

    /// Writes the files into a new or empty directory.
    pub(super) fn write(&self, directory: &Path) -> Result<String, ClientError> {
        let fails = |path: &Path| {
            let name = path.display().to_string();
            move |error: io::Error| ClientError::File { name, reason: error.to_string() }
        };
        fs::create_dir_all(directory).map_err(fails(directory))?;
        if fs::read_dir(directory).map_err(fails(directory))?.next().is_some() {
            return Err(fails(directory)(io::Error::other(
                "expected an empty directory, so that nothing is mixed up",
            )));
        }
        for (name, text) in &self.files {
            // Names come from the server and are not trusted.
            if !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
                return Err(fails(directory)(io::Error::other(format!("the name {name:?} leads out of it"))));
            }
            let file = directory.join(name);
            if let Some(parent) = file.parent() {
                fs::create_dir_all(parent).map_err(fails(parent))?;
            }
            fs::write(&file, text).map_err(fails(&file))?;
        }
        if let Some(version) = &self.version {
            write_base_version(directory, version.number)?;
        }
        Ok(format!("{}files written: {}\n", self.head(), self.files.len()))
    }
}

/// The version that a directory's files were made from, if it is recorded.
pub(super) fn read_base_version(directory: &Path) -> Result<Option<u64>, ClientError> {
    let path = directory.join(VERSION_FILE);
    let fails = |reason: String| ClientError::File { name: path.display().to_string(), reason };
    match bounded_file::read_text(&path, bounded_file::MAX_BYTES) {
        Ok(text) => match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(fails("expected the number of a version".to_owned())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fails(error.to_string())),
    }
}

/// Records in a directory the version of its files.
pub(super) fn write_base_version(directory: &Path, number: u64) -> Result<(), ClientError> {
    let path = directory.join(VERSION_FILE);
    let fails =
        |error: io::Error| ClientError::File { name: path.display().to_string(), reason: error.to_string() };
    fs::write(&path, format!("{number}\n")).map_err(fails)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version_files(name: &str) -> VersionFiles {
        VersionFiles { version: None, files: Files::from([(name.to_owned(), "domain: d\n".to_owned())]) }
    }

    #[test]
    fn files_are_written_only_below_an_empty_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        let inner = directory.path().join("rules");
        for name in ["../out.yaml", "/tmp/out.yaml", "a/../../out.yaml", ""] {
            assert!(version_files(name).write(&inner).is_err(), "{name}");
        }
        version_files("teams/search.yaml").write(&inner).expect("written");
        assert_eq!(fs::read_to_string(inner.join("teams/search.yaml")).expect("is there"), "domain: d\n");
        assert!(version_files("other.yaml").write(&inner).is_err(), "it is not empty");
        assert!(!directory.path().join("out.yaml").exists());
    }
}
