//! Loading of a configuration at startup, when no events have shown yet which files are still being written.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::settling::{Settling, wall_clock};
use crate::config::{
    LoadError, Loaded, Options, build,
    files::{DirectoryListing, Sources, revalidate},
};

/// Interval between two looks at files that were changed recently.
const RECHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time to wait for files that keep changing.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Loads all YAML files of a directory as [`load`](crate::config::load) does, once none of them has changed for three
/// seconds. Files that Kubernetes publishes by a link, and older files, are loaded at once. Blocks for up to a minute.
///
/// # Errors
/// [`LoadError::Unfinished`] if files keep changing, or else [`LoadError`] with all problems.
pub fn load_finished(directory: &Path, options: &Options) -> Result<Loaded, LoadError> {
    let sources = read_finished(directory)?;
    let fingerprint = sources.fingerprint(options.strict);
    build(sources, fingerprint, *options)
}

/// Reads the files of a directory once none of them has changed for three seconds.
pub(in crate::config) fn read_finished(directory: &Path) -> Result<Sources, LoadError> {
    let list = || {
        let listing = DirectoryListing::of(directory);
        listing.map_err(|error| LoadError::Directory { directory: directory.to_owned(), error })
    };
    let (start, mut settling, mut is_logged) = (Instant::now(), Settling::default(), false);
    loop {
        settling.unsettled().for_each(revalidate);
        let listing = list()?;
        let unfinished = settling.observe(&listing, Instant::now(), wall_clock());
        if unfinished.is_empty() {
            let stamp = listing.stamp();
            let sources = listing.read();
            if list()?.stamp() == stamp {
                return Ok(sources);
            }
        } else if start.elapsed() >= MAX_WAIT {
            return Err(LoadError::Unfinished { files: unfinished, waited: start.elapsed() });
        } else if !is_logged {
            is_logged = true;
            tracing::info!(files = unfinished.join(", "), "waiting for files that changed just now");
        }
        thread::sleep(RECHECK_INTERVAL);
    }
}
