//! Paths around a directory whose changes may change its content.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::listing::DirectoryListing;

/// Maximum number of links that a path may contain.
const MAX_LINKS: usize = 40;

/// Paths that are watched.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Surroundings {
    /// Directories in which any change is relevant.
    directories: BTreeSet<PathBuf>,
    /// Components of the path to the directory, where a replaced link is relevant.
    steps: BTreeSet<PathBuf>,
}

impl Surroundings {
    pub(crate) fn of(directory: &Path, listing: Option<&DirectoryListing>) -> Self {
        let directories = listing.map(|listing| listing.directories.iter().cloned().collect());
        Self { directories: directories.unwrap_or_default(), steps: steps(directory) }
    }

    /// Makes the notifier watch all of the paths.
    ///
    /// # Errors
    /// If a directory of the configuration cannot be watched. Errors for directories above are ignored: a process may lack
    /// the permission to read them, and the slow poll remains.
    pub(crate) fn watched_by(&self, mut notifier: RecommendedWatcher) -> notify::Result<RecommendedWatcher> {
        for directory in &self.directories {
            notifier.watch(directory, RecursiveMode::NonRecursive)?;
        }
        let above: BTreeSet<&Path> = self.steps.iter().filter_map(|step| step.parent()).collect();
        for directory in above {
            if !self.directories.contains(directory)
                && let Err(error) = notifier.watch(directory, RecursiveMode::NonRecursive)
            {
                tracing::debug!(directory = %directory.display(), %error, "directory cannot be watched for changes");
            }
        }
        Ok(notifier)
    }

    /// Whether a change of these paths may change the configuration.
    pub(crate) fn concern(&self, paths: &[PathBuf]) -> bool {
        self.restructured_by(paths) || paths.iter().any(|path| self.contain(path))
    }

    /// Whether a change of these paths may replace a watched directory, whose watch has no effect then.
    pub(crate) fn restructured_by(&self, paths: &[PathBuf]) -> bool {
        paths.iter().any(|path| self.directories.contains(path) || self.steps.contains(path))
    }

    /// Whether a path is in a directory in which any change is relevant.
    pub(crate) fn contain(&self, path: &Path) -> bool {
        path.parent().is_some_and(|parent| self.directories.contains(parent))
    }
}

/// Paths that resolving `directory` passes, with links resolved one by one, as far as they exist.
fn steps(directory: &Path) -> BTreeSet<PathBuf> {
    let mut steps = BTreeSet::new();
    let mut links: usize = 0;
    let mut at = PathBuf::from("/");
    let mut ahead: VecDeque<OsString> = parts(directory);
    while let Some(part) = ahead.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        steps.insert(next.clone());
        let Ok(metadata) = next.symlink_metadata() else { break };
        if !metadata.is_symlink() {
            at = next;
            continue;
        }
        links = links.saturating_add(1);
        let Ok(target) = next.read_link() else { break };
        if links > MAX_LINKS {
            break;
        }
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        for part in parts(&target).into_iter().rev() {
            ahead.push_front(part);
        }
    }
    steps
}

/// Names and `..` components of a path.
fn parts(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}
