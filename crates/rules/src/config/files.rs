//! Files of a configuration's directory: listing, bounded reading, and change detection.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::SystemTime,
};

use tollgate_runtime::bounded_file::{self, kind_of};

use super::{
    LoadError,
    fingerprint::{Fingerprint, Hash},
    problem::{Path as TreePath, Problems},
    yaml::Position,
};

/// Maximum depth of nested directories.
const MAX_DEPTH: usize = 16;
/// Maximum number of files and directories, counted once for each path: links between directories can multiply a few
/// files to billions of paths.
const MAX_ENTRIES: usize = 20_000;
/// File in a configuration's directory that permits it to be empty, and to lose most of its rules.
pub(super) const ALLOW_EMPTY_FILE: &str = ".allow-empty";

/// Listing of a directory, sorted by name.
#[derive(Debug, Default)]
pub(super) struct DirectoryListing {
    found: Vec<FoundFile>,
    entries: usize,
    allows_empty: bool,
    /// Size and time of the files that are not loaded, which may become files to load by a rename.
    pub(super) others: BTreeMap<PathBuf, (u64, Option<SystemTime>)>,
    /// The configuration's directory, resolved.
    pub(super) root: PathBuf,
    /// The directories in which a change matters, resolved.
    pub(super) directories: Vec<PathBuf>,
}

#[derive(Debug)]
struct FoundFile {
    /// Relative to the directory, with `/` between the parts.
    name: String,
    path: PathBuf,
    kind: FileKind,
}

#[derive(Debug)]
enum FileKind {
    /// A file to load.
    Yaml(FileStamp),
    /// A file of another kind, which is not loaded.
    Other,
    /// A file or directory that cannot be read.
    Unreadable(io::Error),
}

/// Metadata by which a change of a file is detected without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    bytes: u64,
    pub(super) modified: Option<SystemTime>,
    /// The path with all links resolved, but for a link in the last place.
    pub(super) entry: PathBuf,
    /// The path with all links resolved.
    pub(super) location: PathBuf,
}

/// Stamps of a directory's files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DirectoryStamp(Vec<(String, Option<FileStamp>)>);

impl DirectoryListing {
    /// Lists a directory recursively, or a single file.
    pub(super) fn of(directory: &Path) -> Result<Self, LoadError> {
        Self::list(directory).map_err(|error| LoadError::Directory { directory: directory.to_owned(), error })
    }

    fn list(directory: &Path) -> io::Result<Self> {
        let mut listing = Self { root: directory.canonicalize()?, ..Self::default() };
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if is_yaml(&name) && listing.root.is_file() {
            let parent = listing.root.parent().unwrap_or(directory).to_owned();
            listing.directories.push(parent.clone());
            listing.add(directory.to_owned(), name, &mut vec![parent]);
        } else {
            listing.walk(directory, "", &mut Vec::new())?;
        }
        listing.found.sort_by(|a, b| a.name.cmp(&b.name));
        listing.directories.sort();
        listing.directories.dedup();
        Ok(listing)
    }

    fn walk(&mut self, directory: &Path, prefix: &str, above: &mut Vec<PathBuf>) -> io::Result<()> {
        let resolved = directory.canonicalize()?;
        // A link to a parent directory adds no files.
        if above.contains(&resolved) {
            return Ok(());
        }
        if above.len() >= MAX_DEPTH {
            return Err(io::Error::other(format!("directories nested more than {MAX_DEPTH} levels deep")));
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
            // Hidden files belong to editors and to Kubernetes, which keeps versions in `..data` and similar directories.
            if prefix.is_empty() && file == ALLOW_EMPTY_FILE {
                self.allows_empty = true;
            } else if !file.starts_with('.') {
                self.add(entry.path(), format!("{prefix}{file}"), above);
            } else if !file.starts_with("..") {
                self.add_other(entry.path());
            }
        }
        Ok(())
    }

    fn add(&mut self, path: PathBuf, name: String, above: &mut Vec<PathBuf>) {
        let kind = match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => match self.walk(&path, &format!("{name}/"), above) {
                Ok(()) => return,
                Err(error) => FileKind::Unreadable(error),
            },
            Ok(metadata) if metadata.is_file() && is_yaml(&name) => {
                let entry = match (above.last(), path.file_name()) {
                    (Some(directory), Some(file)) => directory.join(file),
                    _ => path.clone(),
                };
                let target = path.is_symlink().then(|| path.canonicalize().ok()).flatten();
                // A change in the target's directory may replace the file.
                self.directories.extend(target.as_deref().and_then(Path::parent).map(Path::to_owned));
                FileKind::Yaml(FileStamp {
                    bytes: metadata.len(),
                    modified: metadata.modified().ok(),
                    location: target.unwrap_or_else(|| entry.clone()),
                    entry,
                })
            }
            Ok(metadata) if is_yaml(&name) => {
                FileKind::Unreadable(io::Error::other(format!("is {}; expected a file", kind_of(&metadata))))
            }
            Ok(_) => {
                self.add_other(path.clone());
                FileKind::Other
            }
            // Deleted since the directory was read, unlike a dangling link.
            Err(_) if is_deleted(&path) => return,
            Err(error) => FileKind::Unreadable(error),
        };
        self.found.push(FoundFile { name, path, kind });
    }

    fn add_other(&mut self, path: PathBuf) {
        if let Ok(metadata) = path.symlink_metadata()
            && metadata.is_file()
        {
            self.others.insert(path, (metadata.len(), metadata.modified().ok()));
        }
    }

    /// Returns names, sizes and times, which are cheap to compare.
    pub(super) fn stamp(&self) -> DirectoryStamp {
        let stamped = self.found.iter().map(|found| match &found.kind {
            FileKind::Yaml(stamp) => (found.name.clone(), Some(stamp.clone())),
            FileKind::Other | FileKind::Unreadable(_) => (found.name.clone(), None),
        });
        let permission = self.allows_empty.then(|| (ALLOW_EMPTY_FILE.to_owned(), None));
        DirectoryStamp(stamped.chain(permission).collect())
    }

    /// The files to load, by name.
    pub(super) fn stamps(&self) -> impl Iterator<Item = (&str, &FileStamp)> {
        self.found.iter().filter_map(|found| match &found.kind {
            FileKind::Yaml(stamp) => Some((&*found.name, stamp)),
            FileKind::Other | FileKind::Unreadable(_) => None,
        })
    }

    /// Reads the files.
    pub(super) fn read(self) -> Sources {
        let emptiness = if self.allows_empty { Emptiness::Allowed } else { Emptiness::Suspicious };
        let mut sources = Sources { emptiness, ..Sources::default() };
        let mut allowance = Allowance(Some(MAX_TOTAL_BYTES));
        for FoundFile { name, path, kind } in self.found {
            match kind {
                // The last file read has the error.
                FileKind::Yaml(_) if allowance.0.is_none() => {}
                FileKind::Yaml(_) => match allowance.read(&path) {
                    // Deleted since it was listed: the watcher reloads soon.
                    Err(_) if is_deleted(&path) => {}
                    content => sources.files.push((name, content)),
                },
                FileKind::Unreadable(error) => sources.files.push((name, Err(error.to_string()))),
                FileKind::Other => sources.ignored.push(name),
            }
        }
        sources
    }
}

fn is_deleted(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn is_yaml(name: &str) -> bool {
    name.ends_with(".yaml") || name.ends_with(".yml")
}

/// Content of the files of a directory, sorted by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    files: Vec<(String, Result<Vec<u8>, String>)>,
    ignored: Vec<String>,
    emptiness: Emptiness,
}

/// Whether a configuration without files is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Emptiness {
    /// The files do not come from a directory: their source decides.
    #[default]
    Unjudged,
    /// A directory without files is most likely a mistake.
    Suspicious,
    /// The directory has the file [`ALLOW_EMPTY_FILE`].
    Allowed,
}

impl Sources {
    /// Returns files from memory.
    pub(super) fn of(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let files = files.into_iter().map(|(name, content)| (name, Ok(content))).collect();
        Self { files, ..Self::default() }
    }

    /// Whether the directory permits that it is empty, or loses most of its rules.
    pub(super) fn allow_empty(&self) -> bool {
        self.emptiness == Emptiness::Allowed
    }

    /// Whether there are files and none to load: most likely these files were meant to be loaded.
    fn are_all_ignored(&self) -> bool {
        self.files.is_empty() && !self.ignored.is_empty()
    }

    /// Returns a hash of the loaded files, and of ignored files where they are errors.
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
        if self.allow_empty() {
            hash.part(ALLOW_EMPTY_FILE.as_bytes());
        }
        hash.finish()
    }

    /// Returns the readable files that are texts, as all files of a valid configuration are.
    pub(super) fn texts(self) -> BTreeMap<String, String> {
        let texts = self.files.into_iter();
        texts.filter_map(|(name, content)| Some((name, String::from_utf8(content.ok()?).ok()?))).collect()
    }

    /// Reports the unreadable and ignored files, and returns the others.
    pub(super) fn readable<'a>(
        &'a self,
        allow_empty: bool,
        problems: &mut Problems,
    ) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        if self.files.is_empty()
            && self.ignored.is_empty()
            && self.emptiness == Emptiness::Suspicious
            && !allow_empty
        {
            let message = format!(
                "no files, so every request passes; expected a file that ends in .yaml or .yml, --allow-empty or a \
                 file {ALLOW_EMPTY_FILE}"
            );
            problems.warning(".", Position::WHOLE, TreePath::Root, message);
        }
        for name in &self.ignored {
            if self.are_all_ignored() {
                let message =
                    "no file here ends in .yaml or .yml, so none is loaded; rename the files with rules";
                problems.error(name, Position::WHOLE, TreePath::Root, message);
            } else {
                let message = "ignored: only files that end in .yaml or .yml are loaded";
                problems.warning(name, Position::WHOLE, TreePath::Root, message);
            }
        }
        for (name, content) in &self.files {
            if let Err(reason) = content {
                problems.error(name, Position::WHOLE, TreePath::Root, format!("cannot be read: {reason}"));
            }
        }
        self.files.iter().filter_map(|(name, content)| Some((&**name, content.as_deref().ok()?)))
    }
}

/// Maximum size of all files in bytes.
const MAX_TOTAL_BYTES: u64 = 64 << 20;

/// Bytes that may still be read; `None` once the bound was exceeded and reported.
#[derive(Debug)]
struct Allowance(Option<u64>);

impl Allowance {
    /// Reads a file.
    ///
    /// # Errors
    /// The reason, for the report.
    fn read(&mut self, path: &Path) -> Result<Vec<u8>, String> {
        let left = self.0.unwrap_or_default();
        match bounded_file::read_up_to(path, left.min(bounded_file::MAX_BYTES)) {
            Ok(content) => {
                self.0 = left.checked_sub(content.len() as u64);
                Ok(content)
            }
            Err(error) if error.kind() == ErrorKind::FileTooLarge && left < bounded_file::MAX_BYTES => {
                self.0 = None;
                let max_mib = MAX_TOTAL_BYTES >> 20;
                Err(format!("the files up to this one are larger than {max_mib} MiB, the maximum total size"))
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Makes a network file system look up the size and time of a file, as it does when a file is opened.
pub(in crate::config) fn revalidate(path: &Path) {
    // A file that cannot be opened is reported when it is read.
    let _ = bounded_file::open(path);
}
