//! Files that belong to one process.

use std::{
    fs::{File, OpenOptions, TryLockError},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// Permissions of files: only the user of the process, because overrides may contain the keys of clients.
pub(crate) const FILE_MODE: u32 = 0o600;

/// Locks an empty file, which is never removed: otherwise two processes could hold files of the same name.
pub(crate) fn lock(path: &Path) -> Result<File, String> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).open(path);
    let file = file.map_err(|error| error.to_string())?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err("another process uses it".to_owned()),
        Err(TryLockError::Error(error)) => Err(format!("cannot lock it: {error}")),
    }
}
