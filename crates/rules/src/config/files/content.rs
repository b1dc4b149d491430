//! Reading of files with a bound on their total size.

use std::{io::ErrorKind, path::Path};

use tollgate_runtime::bounded_file;

/// Maximum size of all files in bytes.
const MAX_TOTAL_BYTES: u64 = 64 << 20;

/// Bytes that may still be read; `None` once the bound was exceeded and reported.
#[derive(Debug)]
pub(super) struct Allowance(Option<u64>);

impl Default for Allowance {
    fn default() -> Self {
        Self(Some(MAX_TOTAL_BYTES))
    }
}

impl Allowance {
    /// Whether the bound was exceeded.
    pub(super) const fn is_spent(&self) -> bool {
        self.0.is_none()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The reason, for the report.
    pub(super) fn read(&mut self, path: &Path) -> Result<Vec<u8>, String> {
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
