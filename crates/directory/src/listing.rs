//! Listings of a directory, by which a change is detected without reading the files.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, fs, time::SystemTime};

use tollgate_runtime::bounded_file::kind_of;

use crate::DirectoryError;

/// Maximum depth of nested directories.
const MAX_DEPTH: usize = 16;
/// Maximum number of files and directories, counted once for each path: links between directories can multiply a few
/// files to billions of paths.
const MAX_ENTRIES: usize = 20_000;
/// File in a configuration's directory that permits it to be empty, and to lose most of its content.
pub const ALLOW_EMPTY_FILE: &str = ".allow-empty";

/// Listing of a directory, sorted by name.
#[derive(Debug, Default)]
pub(crate) struct DirectoryListing {
    pub(crate) found: Vec<FoundFile>,
    entries: usize,
    /// Whether it has the file [`ALLOW_EMPTY_FILE`].
    pub(crate) allows_empty: bool,
    /// Names of the files that begin with a dot, relative to the root.
    pub(crate) hidden: Vec<String>,
    /// Size and time of the files that are not read, which may become files to read by a rename.
    pub(crate) others: BTreeMap<PathBuf, (u64, Option<SystemTime>)>,
    /// The configuration's directory, resolved.
    pub(crate) root: PathBuf,
    /// The directories in which a change matters, resolved.
    pub(crate) directories: Vec<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct FoundFile {
    /// Relative to the directory, with `/` between the parts.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) kind: FileKind,
}

#[derive(Debug)]
pub(crate) enum FileKind {
    /// A file to read.
    Yaml(FileStamp),
    /// A file of another kind, which is not read.
    Other,
    /// A file or directory that cannot be read.
    Unreadable(io::Error),
}

/// Metadata by which a change of a file is detected without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    bytes: u64,
    pub(crate) modified: Option<SystemTime>,
    /// The path with all links resolved, but for a link in the last place.
    pub(crate) entry: PathBuf,
    /// The path with all links resolved.
    pub(crate) location: PathBuf,
}

/// Stamps of a directory's files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DirectoryStamp(Vec<(String, Option<FileStamp>)>);

impl DirectoryListing {
    /// Lists a directory recursively, or a single file.
    pub(crate) fn of(directory: &Path) -> Result<Self, DirectoryError> {
        Self::list(directory)
            .map_err(|error| DirectoryError::Unreadable { directory: directory.to_owned(), error })
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
        listing.hidden.sort();
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
                self.hidden.extend(entry.path().is_file().then(|| format!("{prefix}{file}")));
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
    pub(crate) fn stamp(&self) -> DirectoryStamp {
        let stamped = self.found.iter().map(|found| match &found.kind {
            FileKind::Yaml(stamp) => (found.name.clone(), Some(stamp.clone())),
            FileKind::Other | FileKind::Unreadable(_) => (found.name.clone(), None),
        });
        let permission = self.allows_empty.then(|| (ALLOW_EMPTY_FILE.to_owned(), None));
        DirectoryStamp(stamped.chain(permission).collect())
    }

    /// The files to read, by name.
    pub(crate) fn stamps(&self) -> impl Iterator<Item = (&str, &FileStamp)> {
        self.found.iter().filter_map(|found| match &found.kind {
            FileKind::Yaml(stamp) => Some((&*found.name, stamp)),
            FileKind::Other | FileKind::Unreadable(_) => None,
        })
    }
}

/// Whether nothing is there, unlike a link to nothing.
pub(crate) fn is_deleted(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn is_yaml(name: &str) -> bool {
    name.ends_with(".yaml") || name.ends_with(".yml")
}
