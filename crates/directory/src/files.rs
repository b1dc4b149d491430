//! Content of the files of a directory, read within bounds.

use std::{collections::BTreeMap, io::ErrorKind, path::Path};

use tollgate_runtime::bounded_file;

use crate::Fingerprint;
use crate::listing::{ALLOW_EMPTY_FILE, DirectoryListing, FileKind, FoundFile, is_deleted};

/// Contents of the files of a directory, or of another source.
#[derive(Clone, Debug, Default)]
pub struct SourceFiles {
    /// Sorted by name; a file that cannot be read has the reason.
    contents: Vec<(String, Result<Vec<u8>, String>)>,
    /// Names of the files that are not read, since they do not end in `.yaml` or `.yml`.
    pub ignored: Vec<String>,
    /// Names of the files that are not read, since their names begin with a dot.
    pub hidden: Vec<String>,
    /// Whether the directory has the file [`ALLOW_EMPTY_FILE`], without which a directory without files is most likely a
    /// mistake; `None` for files that do not come from a directory: their source decides.
    allow_empty: Option<bool>,
}

impl SourceFiles {
    /// Returns files from memory.
    pub fn of(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let contents = files.into_iter().map(|(name, content)| (name, Ok(content))).collect();
        Self { contents, ..Self::default() }
    }

    /// Reads the files of a listing.
    pub(crate) fn read(listing: DirectoryListing) -> Self {
        let allow_empty = Some(listing.allows_empty);
        let mut files = Self { allow_empty, hidden: listing.hidden, ..Self::default() };
        let mut allowance = Allowance(Some(MAX_TOTAL_BYTES));
        for FoundFile { name, path, kind } in listing.found {
            match kind {
                // The last file read has the error.
                FileKind::Yaml(_) if allowance.0.is_none() => {}
                FileKind::Yaml(_) => match allowance.read(&path) {
                    // Deleted since it was listed: a watcher reads again soon.
                    Err(_) if is_deleted(&path) => {}
                    content => files.contents.push((name, content)),
                },
                FileKind::Unreadable(error) => files.contents.push((name, Err(error.to_string()))),
                FileKind::Other => files.ignored.push(name),
            }
        }
        files
    }

    /// The files that were read, by name.
    pub fn readable(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.contents.iter().filter_map(|(name, content)| Some((&**name, content.as_deref().ok()?)))
    }

    /// The files and directories that cannot be read, with the reasons.
    pub fn unreadable(&self) -> impl Iterator<Item = (&str, &str)> {
        self.contents.iter().filter_map(|(name, content)| Some((&**name, &**content.as_ref().err()?)))
    }

    /// Whether there are files and none to read: most likely these files were meant to be read.
    pub fn are_all_ignored(&self) -> bool {
        self.contents.is_empty() && !self.ignored.is_empty()
    }

    /// Whether they are of a directory that permits to be empty, and to lose most of its content.
    pub fn allow_empty(&self) -> bool {
        self.allow_empty == Some(true)
    }

    /// Whether they are of a directory that is empty and does not permit it.
    pub fn are_suspiciously_empty(&self) -> bool {
        self.contents.is_empty() && self.ignored.is_empty() && self.allow_empty == Some(false)
    }

    /// Returns the fingerprint of the files, with the names of ignored files if `strict` or if there are no others.
    pub fn fingerprint(&self, strict: bool) -> Fingerprint {
        let mut parts = Vec::new();
        for (name, content) in &self.contents {
            parts.push(name.as_bytes());
            match content {
                Ok(content) => parts.push(content),
                Err(reason) => parts.extend([&b"unreadable"[..], reason.as_bytes()]),
            }
        }
        if strict || self.are_all_ignored() {
            parts.extend(self.ignored.iter().map(|name| name.as_bytes()));
        }
        if self.allow_empty() {
            parts.push(ALLOW_EMPTY_FILE.as_bytes());
        }
        Fingerprint::of(parts)
    }

    /// Returns the readable files that are texts, as all files of a valid configuration are.
    pub fn texts(self) -> BTreeMap<String, String> {
        let texts = self.contents.into_iter();
        texts.filter_map(|(name, content)| Some((name, String::from_utf8(content.ok()?).ok()?))).collect()
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
