//! The last active version of the rules on the disk of an instance, by which it starts while the store does not respond.

use std::path::{Path, PathBuf};
use std::{fs, io, sync::Arc};

use tokio::{sync::watch, task::spawn_blocking};
use tollgate_runtime::{bounded_file, redact};

use crate::state_file::{replace, sibling};
use crate::{metrics, stored::StoredVersion};

/// Source of a version that is activated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionOrigin {
    Store,
    /// The disk, because the store does not respond or is empty.
    Disk,
}

/// File of a version.
#[derive(Clone, Debug)]
pub struct VersionFile {
    path: PathBuf,
    stored: Option<Arc<StoredVersion>>,
}

impl VersionFile {
    /// Opens a file, which need not exist. A damaged one is logged and renamed to `.damaged`. Blocks.
    pub fn open(path: PathBuf) -> Self {
        let stored = read(&path).unwrap_or_else(|reason| {
            let kept = sibling(&path, ".damaged");
            let renamed =
                fs::rename(&path, &kept).map_or_else(|error| error.to_string(), |()| redact::path(&kept));
            tracing::error!(path = redact::path(&path), reason, renamed, "last version on disk is damaged");
            None
        });
        Self { path, stored }
    }
}

/// Keeps the active version in a file.
#[derive(Debug)]
pub(crate) struct LastVersion {
    /// The version of the file, until one is active.
    stored: Option<Arc<StoredVersion>>,
    active: watch::Sender<Option<Arc<StoredVersion>>>,
}

impl LastVersion {
    /// Starts a task that writes active versions until this is dropped.
    pub(crate) fn start(VersionFile { path, stored }: VersionFile) -> Self {
        let (active, versions) = watch::channel(None);
        tokio::spawn(write_each(path, versions));
        Self { stored, active }
    }

    /// Takes the version of the file.
    pub(crate) const fn take(&mut self) -> Option<Arc<StoredVersion>> {
        self.stored.take()
    }

    /// Has a version written that became active.
    pub(crate) fn activated(&mut self, version: &Arc<StoredVersion>) {
        self.stored = None;
        self.active.send_replace(Some(Arc::clone(version)));
    }
}

async fn write_each(path: PathBuf, mut versions: watch::Receiver<Option<Arc<StoredVersion>>>) {
    while versions.changed().await.is_ok() {
        let Some(version) = versions.borrow_and_update().clone() else { continue };
        let path = path.clone();
        let written = spawn_blocking(move || write(&path, &version)).await;
        if let Err(error) = written.unwrap_or_else(|error| Err(error.into())) {
            metrics::STORE_ERRORS.increment(["rules_file"]);
            tracing::error!(%error, "cannot write the last version to disk");
        }
    }
}

fn write(path: &Path, version: &StoredVersion) -> io::Result<()> {
    replace(path, |writer| Ok(serde_json::to_writer(writer, version)?)).map(drop)
}

/// Reads the version of a file, if it exists.
fn read(path: &Path) -> Result<Option<Arc<StoredVersion>>, String> {
    let content = match bounded_file::read(path) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let stored: StoredVersion =
        serde_json::from_slice(&content).map_err(|error| format!("not a version of the rules: {error}"))?;
    match stored.is_intact() {
        true => Ok(Some(Arc::new(stored))),
        false => Err("its files have another fingerprint than the version".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draft, Files};

    fn version(text: &str) -> StoredVersion {
        let files = Files::from([("rules.yaml".to_owned(), text.to_owned())]);
        let (author, comment) = ("ada".to_owned(), String::new());
        let draft = Draft { files, based_on: Some(6), rollback_to: None, author, comment };
        StoredVersion::of(draft).expect("small")
    }

    #[test]
    fn a_file_has_the_version_that_was_written_last() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("rules.json");
        assert_eq!(VersionFile::open(path.clone()).stored, None);
        for text in ["domain: a", "domain: b"] {
            let version = version(text);
            write(&path, &version).expect("written");
            assert_eq!(VersionFile::open(path.clone()).stored.as_deref(), Some(&version));
        }
    }

    #[test]
    fn a_damaged_file_is_renamed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("rules.json");
        write(&path, &version("domain: a")).expect("written");
        let whole = fs::read_to_string(&path).expect("written");
        for damaged in ["", "{}", &whole[..whole.len() - 1], &whole.replace("domain: a", "domain: b")] {
            fs::write(&path, damaged).expect("written");
            assert_eq!(VersionFile::open(path.clone()).stored, None);
            let kept = sibling(&path, ".damaged");
            assert_eq!(fs::read_to_string(kept).expect("renamed"), damaged);
            assert!(!path.exists());
        }
    }
}
