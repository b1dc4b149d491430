//! Files that the reference loads from a directory, whatever their names.

use std::{fs, io, path::Path};

/// Maximum depth of directories.
const MAX_DEPTH: usize = 16;
/// Maximum number of files and directories.
const MAX_ENTRIES: usize = 20_000;

/// Files that the reference loads and tollgate does not, sorted, with paths relative to the directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct IgnoredFiles {
    /// Files without the extension `.yaml` or `.yml`.
    pub(super) other_endings: Vec<String>,
    /// Files whose names begin with a dot.
    pub(super) hidden: Vec<String>,
    entries: usize,
}

impl IgnoredFiles {
    /// Walks a directory. Links to directories are not followed, as in the reference.
    ///
    /// # Errors
    /// The directory cannot be read, or is too large for a directory of rules.
    pub(super) fn of(directory: &Path) -> io::Result<Self> {
        let mut ignored = Self::default();
        ignored.walk(directory, "", 0)?;
        ignored.other_endings.sort_unstable();
        ignored.hidden.sort_unstable();
        Ok(ignored)
    }

    fn walk(&mut self, directory: &Path, prefix: &str, depth: usize) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            self.entries = self.entries.saturating_add(1);
            if self.entries > MAX_ENTRIES || depth > MAX_DEPTH {
                return Err(io::Error::other("too many files and directories"));
            }
            let file = entry.file_name();
            let (file, name) = (file.to_string_lossy(), format!("{prefix}{}", file.to_string_lossy()));
            let is_hidden = file.starts_with('.');
            match fs::metadata(entry.path()) {
                // Kubernetes keeps the versions of a ConfigMap in hidden directories.
                Ok(metadata) if metadata.is_dir() && is_hidden => {}
                Ok(metadata) if metadata.is_dir() && !entry.path().is_symlink() => {
                    self.walk(&entry.path(), &format!("{name}/"), depth.saturating_add(1))?;
                }
                Ok(metadata) if metadata.is_file() && is_hidden => self.hidden.push(name),
                Ok(metadata) if metadata.is_file() && !is_yaml(&file) => self.other_endings.push(name),
                _ => {}
            }
        }
        Ok(())
    }
}

fn is_yaml(name: &str) -> bool {
    name.ends_with(".yaml") || name.ends_with(".yml")
}
