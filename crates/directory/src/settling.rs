//! Files that may be incomplete because they are still being written.
//!
//! Where the system reports closes, a changed file is complete once its writer has closed it, or once a rename has
//! published it. On other systems, and at startup, a file is complete once its size and time have not changed for
//! [`SETTLE_TIME`]: a writer may pause for two seconds.
//!
//! No wait is endless. Some changes have no close, such as those that a virtual machine's host makes to a shared directory,
//! and some programs keep a file open: [`CLOSE_TIMEOUT`]. A file that is not read may change all the time, such as a
//! heartbeat: [`MAX_OTHERS_DELAY`].

use std::collections::{BTreeMap, HashSet};
use std::mem;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use notify::EventKind;
use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use tollgate_core::clock::Clock;
use tollgate_runtime::bounded_file;

use crate::listing::{DirectoryListing, FileStamp};

/// Time without a change after which a file is complete whose writer is unknown.
pub(crate) const SETTLE_TIME: Duration = Duration::from_secs(3);

/// Time without a change after which a file is complete although no close was reported.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time from the last change of a file that is read in which changes of files that are not read delay a removal.
const MAX_OTHERS_DELAY: Duration = Duration::from_secs(60);

/// Changes of a directory's files over time.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    pub(crate) writers: Writers,
    root: Option<PathBuf>,
    files: BTreeMap<String, Observed>,
    others: BTreeMap<PathBuf, (u64, Option<SystemTime>)>,
    /// Time at which the last change of a file that is read was found, other than the swap of a whole version.
    changed: Option<Instant>,
    /// Time at which the last change of a file that is not read was found.
    others_changed: Option<Instant>,
}

#[derive(Debug)]
struct Observed {
    stamp: FileStamp,
    /// Time at which the last change was found.
    changed: Instant,
    /// Time of the last change, while it is unknown whether the file is complete.
    unsettled: Option<Instant>,
}

impl Settling {
    /// Compares a listing with the one before, and returns the names of the files that may be incomplete. `now` and
    /// `wall_clock` are one moment; the wall clock is compared with the times of the files of the first listing.
    pub(crate) fn observe(
        &mut self,
        listing: &DirectoryListing,
        now: Instant,
        wall_clock: SystemTime,
    ) -> Vec<String> {
        let is_first = self.root.is_none();
        let is_swapped = self.root.as_ref().is_some_and(|root| *root != listing.root);
        self.root = Some(listing.root.clone());
        let mut unfinished = Vec::new();
        let mut files = BTreeMap::new();
        for (name, stamp) in listing.stamps() {
            let before = self.files.remove(name);
            let is_changed = before.as_ref().is_none_or(|before| before.stamp != *stamp);
            let is_published = is_swapped || is_versioned(&stamp.location);
            let is_old = is_first && is_settled(stamp, wall_clock);
            let is_finished = self.writers.is_finished(stamp);
            let changed = before.as_ref().filter(|_| !is_changed).map_or(now, |before| before.changed);
            if now.saturating_duration_since(changed) >= CLOSE_TIMEOUT {
                self.writers.writing.remove(&stamp.location);
            }
            let unsettled = match before {
                _ if is_published || is_old || is_finished => None,
                _ if is_changed => Some(now),
                before => before
                    .and_then(|before| before.unsettled)
                    .filter(|at| now.saturating_duration_since(*at) < SETTLE_TIME),
            };
            if (is_changed || is_finished) && !is_published && !is_old {
                self.changed = Some(now);
            }
            if unsettled.is_some() || self.writers.is_writing(stamp) {
                unfinished.push(name.to_owned());
            }
            files.insert(name.to_owned(), Observed { stamp: stamp.clone(), changed, unsettled });
        }
        // What is left was deleted.
        let is_deleted = self.files.values().any(|file| !is_versioned(&file.stamp.location));
        if !is_swapped && !is_first {
            self.changed = if is_deleted { Some(now) } else { self.changed };
            self.others_changed = if self.others != listing.others { Some(now) } else { self.others_changed };
        }
        self.files = files;
        self.others.clone_from(&listing.others);
        self.writers.clear_finished();
        unfinished
    }

    /// Time at which the directory has not changed for [`SETTLE_TIME`]; `None` if its files only changed by swaps.
    pub(crate) fn quiet_at(&self) -> Option<Instant> {
        let latest = self.changed.max(self.others_changed);
        let at_the_latest = self.changed?.checked_add(MAX_OTHERS_DELAY)?;
        Some(latest?.checked_add(SETTLE_TIME)?.min(at_the_latest))
    }

    /// Handles the loss of any events.
    pub(crate) fn lose_events(&mut self, now: Instant) {
        self.writers.clear_finished();
        self.lose_closes(now);
    }

    /// Handles the loss of closes: files with a writer are complete once they do not change any more.
    pub(crate) fn lose_closes(&mut self, now: Instant) {
        let writing = mem::take(&mut self.writers.writing);
        for file in self.files.values_mut().filter(|file| writing.contains(&file.stamp.location)) {
            file.unsettled = Some(now);
        }
    }

    /// Makes network file systems look up the size and time of the files that may be incomplete, as they do when a file is
    /// opened.
    pub(crate) fn revalidate(&self) {
        for file in self.files.values().filter(|file| file.unsettled.is_some()) {
            // A file that cannot be opened is reported when it is read.
            let _ = bounded_file::open(&file.stamp.location);
        }
    }
}

/// The time that file systems compare the times of files with, as far as their clocks agree.
pub(crate) fn wall_clock() -> SystemTime {
    let since = Duration::from_micros(Clock::System.now().as_micros());
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Whether a file was last changed some time ago. A time in the future, by another machine's clock, proves nothing.
fn is_settled(stamp: &FileStamp, wall_clock: SystemTime) -> bool {
    let age = stamp.modified.and_then(|modified| wall_clock.duration_since(modified).ok());
    age.is_some_and(|age| age >= SETTLE_TIME)
}

/// Whether a file is part of a version that Kubernetes writes completely before it swaps the link `..data`.
fn is_versioned(location: &Path) -> bool {
    location.components().any(
        |part| matches!(part, Component::Normal(name) if name.as_encoded_bytes().starts_with(b"..") && name.len() > 2),
    )
}

/// Whether the system reports that a writer has closed a file.
const REPORTS_CLOSES: bool = cfg!(target_os = "linux");

/// Files with an open writer, and files that are complete, by their paths with all links resolved.
///
/// A file is written from its first change until a close of a descriptor for writing, or until it has not changed for
/// long. With two concurrent writers, the first close counts, until the next change.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    writing: HashSet<PathBuf>,
    /// Files that were closed by a writer, and files, links and directories that a rename published, since the last
    /// [`Writers::clear_finished`].
    finished: HashSet<PathBuf>,
}

impl Writers {
    /// Takes account of an event; `is_file` tests whether a path is in a directory of the configuration.
    pub(crate) fn record(&mut self, kind: EventKind, paths: &[PathBuf], is_file: impl Fn(&Path) -> bool) {
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
    pub(crate) fn is_writing(&self, file: &FileStamp) -> bool {
        self.writing.contains(&file.location)
    }

    /// Whether a writer has closed a file, or a rename has published it.
    pub(crate) fn is_finished(&self, file: &FileStamp) -> bool {
        let mut paths = file.location.ancestors().chain(file.entry.ancestors());
        !self.finished.is_empty() && !self.is_writing(file) && paths.any(|path| self.finished.contains(path))
    }

    /// Forgets what is finished, and the writers of files that were deleted or renamed.
    fn clear_finished(&mut self) {
        self.finished.clear();
        self.writing.retain(|path| path.symlink_metadata().is_ok());
    }
}
