//! The files of a configuration's directory: which there are, what they hold, and whether that changed.

mod content;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use self::content::{Allowance, kind_of};
use super::{
    fingerprint::{Fingerprint, Hash},
    problem::{Path as TreePath, Problems},
    yaml::Position,
};

/// Directories inside of directories that are walked.
const MAX_DEPTH: usize = 16;
/// Files and directories that are looked at, counted each time that a link leads to them: links between directories can
/// multiply a few to billions.
const MAX_ENTRIES: usize = 20_000;

/// What there is in a directory, sorted by name.
#[derive(Debug, Default)]
pub(super) struct Listing {
    found: Vec<Found>,
    entries: usize,
    /// The directories in which a change matters, resolved.
    pub(super) directories: Vec<PathBuf>,
}

#[derive(Debug)]
struct Found {
    /// Relative to the directory, with `/` between the parts.
    name: String,
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A file to load.
    Yaml(Stamp),
    /// Something that is not loaded.
    Other,
    /// Something that can't be looked at.
    Unreadable(io::Error),
}

/// What tells cheaply whether a file changed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
    /// Where a link leads.
    target: Option<PathBuf>,
}

/// What a directory looks like without reading a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Look(Vec<(String, Option<Stamp>)>);

impl Listing {
    /// Walks the directory.
    pub(super) fn of(directory: &Path) -> io::Result<Self> {
        let mut listing = Self::default();
        listing.walk(directory, "", &mut Vec::new())?;
        listing.found.sort_by(|a, b| a.name.cmp(&b.name));
        listing.directories.sort();
        listing.directories.dedup();
        Ok(listing)
    }

    fn walk(&mut self, directory: &Path, prefix: &str, above: &mut Vec<PathBuf>) -> io::Result<()> {
        let resolved = directory.canonicalize()?;
        // A link that leads back up adds nothing.
        if above.contains(&resolved) {
            return Ok(());
        }
        if above.len() >= MAX_DEPTH {
            return Err(io::Error::other(format!("more than {MAX_DEPTH} directories inside of each other")));
        }
        self.directories.push(resolved.clone());
        above.push(resolved);
        let walked = self.entries(directory, prefix, above);
        above.pop();
        walked
    }

    fn entries(&mut self, directory: &Path, prefix: &str, above: &mut Vec<PathBuf>) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            self.entries = self.entries.saturating_add(1);
            if self.entries > MAX_ENTRIES {
                return Err(io::Error::other(format!("more than {MAX_ENTRIES} files and directories")));
            }
            let file = entry.file_name();
            let file = file.to_string_lossy();
            // Hidden files are of editors and of Kubernetes, which keeps versions in `..data` and the like.
            if !file.starts_with('.') {
                self.add(entry.path(), format!("{prefix}{file}"), above);
            }
        }
        Ok(())
    }

    fn add(&mut self, path: PathBuf, name: String, above: &mut Vec<PathBuf>) {
        let kind = match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => match self.walk(&path, &format!("{name}/"), above) {
                Ok(()) => return,
                Err(error) => Kind::Unreadable(error),
            },
            Ok(metadata) if metadata.is_file() && is_yaml(&name) => {
                let target = path.is_symlink().then(|| path.canonicalize().ok()).flatten();
                // A change of the target's directory is a change of the file.
                self.directories.extend(target.as_deref().and_then(Path::parent).map(Path::to_owned));
                Kind::Yaml(Stamp { bytes: metadata.len(), modified: metadata.modified().ok(), target })
            }
            Ok(metadata) if is_yaml(&name) => {
                Kind::Unreadable(io::Error::other(format!("is {}, no file", kind_of(&metadata))))
            }
            Ok(_) => Kind::Other,
            // Gone since the directory was read, unlike a link that leads nowhere.
            Err(_) if is_gone(&path) => return,
            Err(error) => Kind::Unreadable(error),
        };
        self.found.push(Found { name, path, kind });
    }

    /// Names, sizes and times: what is cheap to compare.
    pub(super) fn look(&self) -> Look {
        let stamped = self.found.iter().map(|found| match &found.kind {
            Kind::Yaml(stamp) => (found.name.clone(), Some(stamp.clone())),
            Kind::Other | Kind::Unreadable(_) => (found.name.clone(), None),
        });
        Look(stamped.collect())
    }

    /// Reads the files.
    pub(super) fn read(self) -> Sources {
        let mut sources = Sources::default();
        let mut allowance = Allowance::default();
        for Found { name, path, kind } in self.found {
            match kind {
                // The error that says so stands on the last one.
                Kind::Yaml(_) if allowance.is_spent() => {}
                Kind::Yaml(_) => match allowance.read(&path) {
                    // Gone since it was listed, which is a change that is read in a moment.
                    Err(_) if is_gone(&path) => {}
                    content => sources.files.push((name, content)),
                },
                Kind::Unreadable(error) => sources.files.push((name, Err(error.to_string()))),
                Kind::Other => sources.ignored.push(name),
            }
        }
        sources
    }
}

fn is_gone(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn is_yaml(name: &str) -> bool {
    name.ends_with(".yaml") || name.ends_with(".yml")
}

/// What the files of a directory hold, sorted by name.
#[derive(Debug, Default)]
pub(super) struct Sources {
    files: Vec<(String, Result<Vec<u8>, String>)>,
    ignored: Vec<String>,
}

impl Sources {
    /// Files that were read elsewhere.
    pub(super) fn of(files: Vec<(String, Vec<u8>)>) -> Self {
        let files = files.into_iter().map(|(name, content)| (name, Ok(content))).collect();
        Self { files, ignored: Vec::new() }
    }

    /// Whether there are files and none to load: most likely those that are there were meant.
    fn are_all_ignored(&self) -> bool {
        self.files.is_empty() && !self.ignored.is_empty()
    }

    /// A hash of all that is loaded. A file that is ignored counts where it is an error.
    pub(super) fn fingerprint(&self, strict: bool) -> Fingerprint {
        let mut hash = Hash::default();
        for (name, content) in &self.files {
            hash.part(name.as_bytes());
            match content {
                Ok(content) => hash.part(content),
                Err(reason) => {
                    hash.part(b"unreadable");
                    hash.part(reason.as_bytes());
                }
            }
        }
        if strict || self.are_all_ignored() {
            self.ignored.iter().for_each(|name| hash.part(name.as_bytes()));
        }
        hash.finish()
    }

    /// Every file that could be read and is a text, as all of a valid configuration are.
    pub(super) fn texts(self) -> BTreeMap<String, String> {
        let texts = self.files.into_iter();
        texts.filter_map(|(name, content)| Some((name, String::from_utf8(content.ok()?).ok()?))).collect()
    }

    /// Every file that could be read, after reporting the others.
    pub(super) fn readable<'a>(
        &'a self,
        problems: &mut Problems,
    ) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        for name in &self.ignored {
            if self.are_all_ignored() {
                let message =
                    "no file here ends in .yaml or .yml, so that none would be loaded: rename those of rules";
                problems.error(name, Position::WHOLE, TreePath::Root, message);
            } else {
                let message = "ignored: only files that end in .yaml or .yml are loaded";
                problems.warning(name, Position::WHOLE, TreePath::Root, message);
            }
        }
        for (name, content) in &self.files {
            if let Err(reason) = content {
                problems.error(name, Position::WHOLE, TreePath::Root, format!("can't be read: {reason}"));
            }
        }
        self.files.iter().filter_map(|(name, content)| Some((&**name, content.as_deref().ok()?)))
    }
}
