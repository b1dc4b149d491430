//! File of the store.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tollgate_runtime::{bounded_file, redact};

use super::state::State;
use crate::lock_file::{FILE_MODE, lock};

/// Format version of the file.
const FORMAT: u32 = 1;

/// Maximum size of a file: the store is smaller, however much of it JSON escapes.
const MAX_FILE_BYTES: u64 = 512 << 20;

/// Error of an unusable file.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the rules file {path} (--rules-file): {reason}")]
pub struct FileError {
    path: String,
    reason: String,
}

#[derive(Serialize)]
struct Written<'a> {
    form: u32,
    state: &'a State,
}

#[derive(Deserialize)]
struct FormatHeader {
    form: u32,
}

#[derive(Deserialize)]
struct Body {
    state: State,
}

/// The file, locked against other processes.
#[derive(Debug)]
pub(super) struct RulesFile {
    path: PathBuf,
    /// A separate file, because every change replaces the file itself.
    _lock: File,
}

impl RulesFile {
    /// Opens the file and reads its state; creates it if it does not exist.
    ///
    /// # Errors
    /// When another process uses it, it cannot be read or written, or is not a rules file.
    pub(super) fn open(path: PathBuf) -> Result<(Self, State), FileError> {
        let unusable = |reason: String| FileError { path: redact::path(&path), reason };
        let lock = lock(&sibling(&path, ".lock")).map_err(unusable)?;
        let content = read(&path).map_err(unusable)?;
        let file = Self { path, _lock: lock };
        let state = match content {
            Some(state) => state,
            None => {
                // A file that cannot be written is better reported at the start than at the first change.
                let written = file.write(&State::default());
                written.map_err(|error| FileError {
                    path: redact::path(&file.path),
                    reason: error.to_string(),
                })?;
                State::default()
            }
        };
        Ok((file, state))
    }

    /// Replaces the file. After an error it has its former content or the new one.
    pub(super) fn write(&self, state: &State) -> io::Result<()> {
        let temporary = sibling(&self.path, ".new");
        // Left by a process that was killed; a new file has the right permissions and is not a symbolic link.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&temporary)?;
        let mut writer = BufWriter::new(file);
        serde_json::to_writer(&mut writer, &Written { form: FORMAT, state })?;
        writer.flush()?;
        writer.get_ref().sync_all()?;
        fs::rename(&temporary, &self.path)?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }
}

fn sibling(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

/// Reads the state, if the file exists.
fn read(path: &Path) -> Result<Option<State>, String> {
    let text = match bounded_file::read_up_to(path, MAX_FILE_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    // The error itself may quote the content.
    let damaged = |error: serde_json::Error| format!("not a rules file, or damaged at line {}", error.line());
    // Read separately, because the rest may differ in another format.
    let FormatHeader { form } = serde_json::from_slice(&text).map_err(damaged)?;
    if form != FORMAT {
        return Err(format!("unsupported format {form}; expected {FORMAT}"));
    }
    let Body { state } = serde_json::from_slice(&text).map_err(damaged)?;
    Ok(Some(state))
}
