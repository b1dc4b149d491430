//! Reading of files with bounds on time and size.

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
};

/// Maximum size of a file in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
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
        let file = open(path)?;
        let left = self.0.unwrap_or_default();
        let max_bytes = left.min(MAX_FILE_BYTES);
        let expected = file.metadata().map_or(0, |metadata| metadata.len()).min(max_bytes);
        let mut content = Vec::with_capacity(usize::try_from(expected).unwrap_or_default().saturating_add(1));
        // A file that grows while it is read is truncated at the bound.
        let read = file.take(max_bytes.saturating_add(1)).read_to_end(&mut content);
        let bytes = read.map_err(|error| error.to_string())? as u64;
        if bytes > MAX_FILE_BYTES {
            return Err(format!("larger than {} MiB, the maximum file size", MAX_FILE_BYTES >> 20));
        }
        self.0 = left.checked_sub(bytes);
        match self.0 {
            Some(_) => Ok(content),
            None => {
                let max_mib = MAX_TOTAL_BYTES >> 20;
                Err(format!("the files up to this one are larger than {max_mib} MiB, the maximum total size"))
            }
        }
    }
}

/// Makes a network file system look up the size and time of a file, as it does when a file is opened.
pub(in crate::config) fn revalidate(path: &Path) {
    // A file that cannot be opened is reported when it is read.
    let _ = open(path);
}

fn open(path: &Path) -> Result<File, String> {
    let mut options = File::options();
    options.read(true);
    without_waiting(&mut options);
    let file = options.open(path).map_err(|error| error.to_string())?;
    // The file may have been replaced since the directory was listed.
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(metadata) => Err(format!("is {}; expected a file", kind_of(&metadata))),
        Err(error) => Err(error.to_string()),
    }
}

/// Lets a named pipe be opened without waiting for a writer.
#[cfg(target_os = "linux")]
fn without_waiting(options: &mut fs::OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
}

#[cfg(not(target_os = "linux"))]
fn without_waiting(_: &mut fs::OpenOptions) {}

/// Kind of something other than a file, for messages.
#[cfg(unix)]
pub(super) fn kind_of(metadata: &fs::Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    match metadata.file_type() {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a named pipe",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_block_device() || kind.is_char_device() => "a device",
        _ => "something else",
    }
}

#[cfg(not(unix))]
pub(super) fn kind_of(_: &fs::Metadata) -> &'static str {
    "something else"
}
