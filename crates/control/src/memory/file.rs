//! The store's file.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, BufWriter, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::state::State;
use tollgate_runtime::redact;

/// The form of the file.
const FORM: u32 = 1;

/// Bytes of a file that is read: what is kept has less, however much of it JSON escapes.
const LONGEST: u64 = 512 << 20;

/// Who may read it, for rules and lists may name clients by their keys: whom the process runs as.
const MODE: u32 = 0o600;

/// Why what is on disk can't be used.
#[derive(Debug, thiserror::Error)]
#[error("the file of the rules {path} can't be used (--rules-file): {reason}")]
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
struct Form {
    form: u32,
}

#[derive(Deserialize)]
struct Content {
    state: State,
}

/// The file, which no other process uses while this is there.
#[derive(Debug)]
pub(super) struct RulesFile {
    path: PathBuf,
    /// Beside it, since the file itself is another one after each change.
    _lock: File,
}

impl RulesFile {
    /// The file and what it has, which is nothing where there is none.
    ///
    /// # Errors
    /// When another process uses it, it can't be read or written, or is none of ours.
    pub(super) fn open(path: PathBuf) -> Result<(Self, State), FileError> {
        let unusable = |reason: String| FileError { path: redact::path(&path), reason };
        let lock = lock(&beside(&path, ".lock")).map_err(unusable)?;
        let content = read(&path).map_err(unusable)?;
        let file = Self { path, _lock: lock };
        let state = match content {
            Some(state) => state,
            None => {
                // That it can't be written is better known at the start than at the first change.
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

    /// Replaces it. After an error, it is as it was, or what was to be written.
    pub(super) fn write(&self, state: &State) -> io::Result<()> {
        let beside = beside(&self.path, ".new");
        // What a process left that was killed; a new file has the mode, and is no link to elsewhere.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&beside)?;
        let mut writer = BufWriter::new(file);
        serde_json::to_writer(&mut writer, &Written { form: FORM, state })?;
        writer.flush()?;
        writer.get_ref().sync_all()?;
        fs::rename(&beside, &self.path)?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

/// Holds a file that stays where it is, empty: if it were removed, two could hold one of that name.
fn lock(path: &Path) -> Result<File, String> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(MODE).open(path);
    let file = file.map_err(|error| error.to_string())?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err("another process uses it".to_owned()),
        Err(TryLockError::Error(error)) => Err(format!("it can't be locked: {error}")),
    }
}

/// What a file has, if there is one.
fn read(path: &Path) -> Result<Option<State>, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = Vec::new();
    file.take(LONGEST.saturating_add(1)).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if u64::try_from(text.len()).is_ok_and(|length| length > LONGEST) {
        return Err(format!("it has more than {LONGEST} bytes, so it is none of ours"));
    }
    // The error itself may quote what stands there.
    let damaged =
        |error: serde_json::Error| format!("it is none of ours, or damaged at line {}", error.line());
    // By itself, as the rest may be anything in another form.
    let Form { form } = serde_json::from_slice(&text).map_err(damaged)?;
    if form != FORM {
        return Err(format!("it is of the form {form}, and {FORM} is what this program knows"));
    }
    let Content { state } = serde_json::from_slice(&text).map_err(damaged)?;
    Ok(Some(state))
}
