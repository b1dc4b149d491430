//! Programs that write files, as file events show them.

use std::{
    collections::HashSet,
    mem,
    path::{Path, PathBuf},
};

use notify::{
    EventKind,
    event::{AccessKind, AccessMode, ModifyKind, RenameMode},
};

use crate::config::files::FileStamp;

/// Whether the system reports that a writer has closed a file.
const REPORTS_CLOSES: bool = cfg!(target_os = "linux");

/// Files with an open writer, and files that are complete, by their paths with all links resolved.
///
/// A file is written from its first change until a close of a descriptor for writing, or until it has not changed for
/// long. With two concurrent writers, the
/// first close counts, until the next change.
#[derive(Debug, Default)]
pub(super) struct Writers {
    writing: HashSet<PathBuf>,
    /// Files that were closed by a writer, and files, links and directories that a rename published, since the last
    /// [`Writers::clear_finished`].
    finished: HashSet<PathBuf>,
}

impl Writers {
    /// Takes account of an event; `is_file` tests whether a path is in a directory of the configuration.
    pub(super) fn record(&mut self, kind: EventKind, paths: &[PathBuf], is_file: impl Fn(&Path) -> bool) {
        match (kind, paths) {
            (EventKind::Modify(ModifyKind::Data(_)), paths) if REPORTS_CLOSES => {
                for path in paths.iter().filter(|path| is_file(path)) {
                    self.finished.remove(path);
                    self.writing.insert(path.clone());
                }
            }
            (EventKind::Access(AccessKind::Close(AccessMode::Write)), paths)
            | (EventKind::Modify(ModifyKind::Name(RenameMode::To)), paths) => {
                for path in paths {
                    self.writing.remove(path);
                    self.finished.insert(path.clone());
                }
            }
            // A file that is renamed while it is written; its new name was reported before as `To`.
            (EventKind::Modify(ModifyKind::Name(RenameMode::Both)), [from, to])
                if self.writing.remove(from) =>
            {
                self.finished.remove(to);
                self.writing.insert(to.clone());
            }
            (EventKind::Remove(_), paths) => paths.iter().for_each(|path| {
                self.writing.remove(path);
            }),
            _ => {}
        }
    }

    /// Whether a writer has a file open.
    pub(super) fn is_writing(&self, file: &FileStamp) -> bool {
        self.writing.contains(&file.location)
    }

    /// Forgets the writer of a file.
    pub(super) fn forget_writer(&mut self, file: &FileStamp) {
        self.writing.remove(&file.location);
    }

    /// Whether a writer has closed a file, or a rename has published it.
    pub(super) fn is_finished(&self, file: &FileStamp) -> bool {
        let mut paths = file.location.ancestors().chain(file.entry.ancestors());
        !self.finished.is_empty() && !self.is_writing(file) && paths.any(|path| self.finished.contains(path))
    }

    /// Forgets what is finished, and the writers of files that were deleted or renamed.
    pub(super) fn clear_finished(&mut self) {
        self.finished.clear();
        self.writing.retain(|path| path.symlink_metadata().is_ok());
    }

    /// Forgets the writers, and returns their files.
    pub(super) fn forget_writers(&mut self) -> HashSet<PathBuf> {
        mem::take(&mut self.writing)
    }
}
