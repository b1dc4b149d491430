//! Which paths around a directory matter to what is in it.

use std::{
    collections::{BTreeSet, VecDeque},
    ffi::OsString,
    path::{Component, Path, PathBuf},
};

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::config::files::Listing;

/// Links that a path may lead through.
const MAX_LINKS: usize = 40;

/// The paths whose changes matter.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Surroundings {
    /// Directories in which any change matters.
    directories: BTreeSet<PathBuf>,
    /// Each step on the way to the directory, where links that are swapped count.
    steps: BTreeSet<PathBuf>,
}

impl Surroundings {
    pub(super) fn of(directory: &Path, listing: Option<&Listing>) -> Self {
        let directories = listing.map(|listing| listing.directories.iter().cloned().collect());
        Self { directories: directories.unwrap_or_default(), steps: steps(directory) }
    }

    /// The notifier, made to watch all of them.
    ///
    /// # Errors
    /// When a directory of the configuration can't be watched. One on the way to it need not be: not every
    /// process may read them, and the slow poll is left.
    pub(super) fn watched_by(&self, mut notifier: RecommendedWatcher) -> notify::Result<RecommendedWatcher> {
        for directory in &self.directories {
            notifier.watch(directory, RecursiveMode::NonRecursive)?;
        }
        let above: BTreeSet<&Path> = self.steps.iter().filter_map(|step| step.parent()).collect();
        for directory in above {
            if !self.directories.contains(directory)
                && let Err(error) = notifier.watch(directory, RecursiveMode::NonRecursive)
            {
                tracing::debug!(directory = %directory.display(), %error, "can't be watched for changes");
            }
        }
        Ok(notifier)
    }

    /// Whether a change of these paths may be one of the configuration.
    pub(super) fn concern(&self, paths: &[PathBuf]) -> bool {
        let is_inside =
            |path: &PathBuf| path.parent().is_some_and(|parent| self.directories.contains(parent));
        paths.is_empty()
            || paths
                .iter()
                .any(|path| is_inside(path) || self.directories.contains(path) || self.steps.contains(path))
    }
}

/// Every path that a look at `directory` passes, with links resolved one by one, as far as there is one.
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

/// The names and `..` of a path.
fn parts(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}
