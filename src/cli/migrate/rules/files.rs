//! The files of a directory as the reference sees them: every one, whatever its name.

use std::{fs, io, path::Path};

/// Directories inside of directories that are walked.
const MAX_DEPTH: usize = 16;
/// Files and directories that are looked at.
const MAX_ENTRIES: usize = 20_000;

/// Files that the reference loads and tollgate does not, sorted, by their paths below the directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// Their names do not end in `.yaml` or `.yml`.
    pub(super) other_endings: Vec<String>,
    /// Their names begin with a dot.
    pub(super) hidden: Vec<String>,
    entries: usize,
}

impl Passed {
    /// Walks a directory. Links to directories are not followed, as there.
    ///
    /// # Errors
    /// When it can't be read, or is too large to be one of rules.
    pub(super) fn of(directory: &Path) -> io::Result<Self> {
        let mut passed = Self::default();
        passed.walk(directory, "", 0)?;
        passed.other_endings.sort_unstable();
        passed.hidden.sort_unstable();
        Ok(passed)
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
                // Kubernetes keeps the versions of a ConfigMap in such.
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
