//! A directory of configuration files as a source: reads its `.yaml` and `.yml` files within bounds, and watches it.
//!
//! [`read`] reads the files as they are, [`read_finished`] once they are complete, and a [`Watcher`] after each
//! change. What the files mean is their reader's affair.

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

mod files;
mod fingerprint;
mod listing;
mod settling;
mod surroundings;
#[cfg(test)]
mod tests;
mod watch;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{io, thread};

use self::listing::DirectoryListing;
use self::settling::{Settling, wall_clock};
pub use self::watch::{Reply, Watcher};
pub use self::{files::SourceFiles, fingerprint::Fingerprint, listing::ALLOW_EMPTY_FILE};

/// Interval between two looks at files that were changed recently.
const RECHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time to wait for files that keep changing.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Error of a directory whose files were not read.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// A directory that cannot be read.
    #[error("the configuration directory {} cannot be read: {error}", directory.display())]
    Unreadable {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// Files that are still being written.
    #[error("{} still being written after {} s; expected finished files", files.join(", "), waited.as_secs())]
    Unfinished {
        /// Their names, relative to the directory.
        files: Vec<String>,
        /// Time since they were first found unfinished.
        waited: Duration,
    },
}

impl DirectoryError {
    /// Whether there is no directory.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Unreadable { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }

    /// Fingerprint that takes the place of the content's.
    pub fn fingerprint(&self) -> Fingerprint {
        let reason = match self {
            Self::Unreadable { error, .. } => error.to_string(),
            Self::Unfinished { .. } => "unfinished".to_owned(),
        };
        Fingerprint::of([&b"unreadable"[..], reason.as_bytes()])
    }
}

/// Reads all YAML files of a directory, or a single file.
///
/// # Errors
/// [`DirectoryError::Unreadable`]. A file that cannot be read is one of [`SourceFiles::unreadable`].
pub fn read(directory: &Path) -> Result<SourceFiles, DirectoryError> {
    Ok(SourceFiles::read(DirectoryListing::of(directory)?))
}

/// Reads the files of a directory as [`read`] does, once none of them has changed for three seconds. Files that Kubernetes
/// publishes by a link, and older files, are read at once: at startup, no events have shown yet which files are still being
/// written. Blocks for up to a minute.
///
/// # Errors
/// [`DirectoryError::Unfinished`] if files keep changing.
pub fn read_finished(directory: &Path) -> Result<SourceFiles, DirectoryError> {
    let (start, mut settling, mut is_logged) = (Instant::now(), Settling::default(), false);
    loop {
        settling.revalidate();
        let listing = DirectoryListing::of(directory)?;
        let unfinished = settling.observe(&listing, Instant::now(), wall_clock());
        if unfinished.is_empty() {
            let stamp = listing.stamp();
            let files = SourceFiles::read(listing);
            if DirectoryListing::of(directory)?.stamp() == stamp {
                return Ok(files);
            }
        } else if start.elapsed() >= MAX_WAIT {
            return Err(DirectoryError::Unfinished { files: unfinished, waited: start.elapsed() });
        } else if !is_logged {
            is_logged = true;
            tracing::info!(files = unfinished.join(", "), "waiting for files that changed just now");
        }
        thread::sleep(RECHECK_INTERVAL);
    }
}
