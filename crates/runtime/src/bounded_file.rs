//! Reading of files with bounds on time and size: a file may be a device without end, or grow while it is read. Changes of a
//! file that is polled.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
#[cfg(target_os = "linux")]
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Maximum size of a file in bytes, where no other is stated.
pub const MAX_BYTES: u64 = 16 << 20;

/// Reads a file of at most [`MAX_BYTES`].
///
/// # Errors
/// When it is no regular file, is larger, or cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_up_to(path, MAX_BYTES)
}

/// Reads a file of at most `max_bytes`.
///
/// # Errors
/// When it is no regular file, is larger ([`io::ErrorKind::FileTooLarge`]), or cannot be read.
pub fn read_up_to(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    content(open(path)?, max_bytes)
}

/// Reads a text of at most `max_bytes` that a command is given, from a pipe too.
///
/// # Errors
/// When it is larger, is not UTF-8, or cannot be read.
pub fn read_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    String::from_utf8(content(File::open(path)?, max_bytes)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8; expected a text"))
}

fn content(file: File, max_bytes: u64) -> io::Result<Vec<u8>> {
    let expected = file.metadata().map_or(0, |metadata| metadata.len()).min(max_bytes);
    let mut content = Vec::with_capacity(usize::try_from(expected).unwrap_or_default().saturating_add(1));
    let bytes = file.take(max_bytes.saturating_add(1)).read_to_end(&mut content)? as u64;
    match bytes > max_bytes {
        true => {
            let most = if max_bytes < 1 << 20 { max_bytes >> 10 } else { max_bytes >> 20 };
            let unit = if max_bytes < 1 << 20 { "KiB" } else { "MiB" };
            let reason = format!("larger than {most} {unit}, the maximum file size");
            Err(io::Error::new(io::ErrorKind::FileTooLarge, reason))
        }
        false => Ok(content),
    }
}

/// Content of a file that is polled. A change counts once two polls in a row have found it: a part of a file may be valid too.
#[derive(Debug)]
pub struct Polled<T> {
    last: T,
    handled: T,
}

impl<T: Clone + PartialEq> Polled<T> {
    /// Content that needs no handling.
    pub fn new(handled: T) -> Self {
        Self { last: handled.clone(), handled }
    }

    /// Returns what a poll found, if it has to be handled.
    pub fn changed(&mut self, found: T) -> Option<&T> {
        let is_settled = self.last == found;
        self.last = found;
        if !is_settled || self.last == self.handled {
            return None;
        }
        self.handled.clone_from(&self.last);
        Some(&self.handled)
    }
}

/// Opens a regular file, without waiting for the writer of a named pipe.
///
/// # Errors
/// When it is another kind of file, or cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    #[cfg(target_os = "linux")]
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let file = options.read(true).open(path)?;
    let metadata = file.metadata()?;
    match metadata.is_file() {
        true => Ok(file),
        false => Err(io::Error::other(format!("is {}; expected a file", kind_of(&metadata)))),
    }
}

/// Kind of something other than a file, for messages.
pub fn kind_of(metadata: &fs::Metadata) -> &'static str {
    match metadata.file_type() {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a named pipe",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_block_device() || kind.is_char_device() => "a device",
        _ => "something else",
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_a_pipe_and_a_large_file_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        fs::write(&path, vec![b'x'; 2_048]).expect("written");
        assert_eq!(read_up_to(&path, 2_048).expect("fits").len(), 2_048);
        let error = read_up_to(&path, 2_047).expect_err("too large");
        assert_eq!(
            (error.kind(), &*error.to_string()),
            (io::ErrorKind::FileTooLarge, "larger than 1 KiB, the maximum file size")
        );
        let endless = Path::new("/dev/zero");
        assert_eq!(read(endless).expect_err("no file").to_string(), "is a device; expected a file");
        let error = read_text(endless, 1 << 20).expect_err("too large");
        assert_eq!(error.to_string(), "larger than 1 MiB, the maximum file size");
        let pipe = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from(0o600)).expect("made");
        assert_eq!(read(&pipe).expect_err("no file").to_string(), "is a named pipe; expected a file");
    }
}
