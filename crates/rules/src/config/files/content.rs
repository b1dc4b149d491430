//! The content of one file, read so that nothing in a directory can hold the reader up.

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
};

/// Bytes of the largest file that is read.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Bytes of all files.
const MAX_BYTES: u64 = 64 << 20;

/// How much is still read: nothing more, once it was said that it is not enough.
#[derive(Debug)]
pub(super) struct Allowance(Option<u64>);

impl Default for Allowance {
    fn default() -> Self {
        Self(Some(MAX_BYTES))
    }
}

impl Allowance {
    /// Whether no file can be read any more.
    pub(super) const fn is_spent(&self) -> bool {
        self.0.is_none()
    }

    /// Reads a file, or says why not.
    pub(super) fn read(&mut self, path: &Path) -> Result<Vec<u8>, String> {
        let file = open(path)?;
        let left = self.0.unwrap_or_default();
        let most = left.min(MAX_FILE_BYTES);
        let expected = file.metadata().map_or(0, |metadata| metadata.len()).min(most);
        let mut content = Vec::with_capacity(usize::try_from(expected).unwrap_or_default().saturating_add(1));
        // What grows while it is read is read so far all the same.
        let read = file.take(most.saturating_add(1)).read_to_end(&mut content);
        let bytes = read.map_err(|error| error.to_string())? as u64;
        if bytes > MAX_FILE_BYTES {
            return Err(format!("larger than {} MiB, the most that is read", MAX_FILE_BYTES >> 20));
        }
        self.0 = left.checked_sub(bytes);
        match self.0 {
            Some(_) => Ok(content),
            None => {
                let most = MAX_BYTES >> 20;
                Err(format!("the files up to this one are larger than {most} MiB, the most that is read"))
            }
        }
    }
}

fn open(path: &Path) -> Result<File, String> {
    let mut options = File::options();
    options.read(true);
    without_waiting(&mut options);
    let file = options.open(path).map_err(|error| error.to_string())?;
    // It may have become something else since the directory was listed.
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(metadata) => Err(format!("is {}, no file", kind_of(&metadata))),
        Err(error) => Err(error.to_string()),
    }
}

/// Lets a named pipe be opened without waiting for somebody who writes to it.
#[cfg(target_os = "linux")]
fn without_waiting(options: &mut fs::OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
}

#[cfg(not(target_os = "linux"))]
fn without_waiting(_: &mut fs::OpenOptions) {}

/// What it is that is no file.
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
