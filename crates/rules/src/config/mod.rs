//! Loading of [`Rules`] from YAML files or from a control plane, and reloading after changes.
//!
//! ```text
//! directory ── files ──> yaml ── reader ──> raw ── compile ──> Rules
//!     └─ watch: repeats all of it after a change, unless the content is equal
//! ```
//!
//! - `files` finds and reads the files; `yaml` (with `scalar`) parses them to trees with line numbers.
//! - `reader` checks shapes, types and keys (`vocabulary`), and fills `raw`: the configuration as written.
//! - `layers` lays the overlay over `raw`, and fills the limits that inherit.
//! - `compile` checks the meaning of `raw`, and compiles it to rules.
//! - [`compile_raw`] accepts `raw` from another source, such as a control plane.
//! - `problem` collects the problems of all stages, each with its file and line.
//! - [`Watcher`] reloads.
//!
//! A configuration is loaded as a whole or not at all.

mod compile;
mod files;
#[doc(hidden)]
pub mod fingerprint;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod layers;
#[doc(hidden)]
pub mod problem;
#[doc(hidden)]
pub mod raw;
mod reader;
pub(crate) mod region_table;
pub mod schema;
#[cfg(test)]
pub(crate) mod tests;
mod vocabulary;
mod watch;
#[doc(hidden)]
pub mod yaml;

use std::{
    collections::BTreeMap,
    io,
    panic::{self, AssertUnwindSafe, UnwindSafe},
    path::{Path, PathBuf},
    time::Duration,
};

use tollgate_core::descriptor::RequestBounds;

pub use self::{
    compile::override_rule,
    fingerprint::Fingerprint,
    layers::{Laid, Overlay, OverlaySlot},
    problem::{Problem, Report, Severity},
    region_table::read_regions,
    vocabulary::{is_of_reference, nearest},
    watch::{Reload, Watcher, load_finished},
};
use self::{
    files::{DirectoryListing, Sources},
    problem::Problems,
    raw::RawFile,
    watch::read_finished,
};
use crate::{Rules, TableSize};

/// Options of loading a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether several files may state descriptors of one domain. Their first levels are concatenated in the order of the
    /// files' names.
    pub merge_domains: bool,
    /// Whether warnings are errors.
    pub strict: bool,
    /// Whether a directory may be empty, or lose most of its rules.
    pub allow_empty: bool,
    /// Region table that the configuration is used with.
    pub regions: TableSize,
    /// The overlay of the rules, if there may be one.
    pub overlay: Option<&'static OverlaySlot>,
    /// Whether a request that a limit denies is charged to no other one, in domains that do not state `atomic`.
    pub stop_when_denied: bool,
    /// Bounds of the requests that the configuration is used with.
    pub bounds: RequestBounds,
}

/// A loaded configuration.
#[derive(Debug)]
pub struct Loaded {
    /// The compiled rules.
    pub rules: Rules,
    /// Likely mistakes.
    pub warnings: Report,
    /// Fingerprint of the content, without the overlay.
    pub fingerprint: Fingerprint,
    /// The overlay that was laid over the rules, if there was one.
    pub overlay: Option<Laid>,
    /// Whether the options or the directory permit that most of the active rules are missing.
    pub allow_empty: bool,
}

impl Loaded {
    /// Fingerprint of the content with the overlay that was laid over it.
    pub fn whole_fingerprint(&self) -> Fingerprint {
        self.overlay.map_or(self.fingerprint, |laid| self.fingerprint.under(laid.fingerprint))
    }

    /// Returns one line with the numbers of domains and rules.
    pub fn summary(&self) -> String {
        let (domains, rules) = (self.rules.domains().count(), self.rules.rules().count());
        format!("all rate limit configs ok: domains {domains}, rules {rules}")
    }

    /// Returns the warnings, if there are any, and the summary.
    pub fn report(&self) -> String {
        match self.warnings.problems() {
            [] => self.summary(),
            _ => format!("{}\n{}", self.warnings, self.summary()),
        }
    }
}

/// Error of a configuration that was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A directory that cannot be read.
    #[error("the configuration directory {} cannot be read: {error}", directory.display())]
    Directory {
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
    /// A defect of the loader; the log has the details.
    #[error("internal error while loading this configuration; see the log")]
    Broken {
        /// Fingerprint of the content.
        fingerprint: Fingerprint,
    },
    /// Invalid content.
    #[error("{report}")]
    Invalid {
        /// The problems.
        report: Report,
        /// Fingerprint of the content.
        fingerprint: Fingerprint,
    },
}

impl LoadError {
    /// Fingerprint of the content that was not loaded.
    pub fn fingerprint(&self) -> Fingerprint {
        match self {
            Self::Directory { error, .. } => Fingerprint::of_failure(error),
            Self::Unfinished { .. } => Fingerprint::of_failure(&io::ErrorKind::WouldBlock.into()),
            Self::Broken { fingerprint } | Self::Invalid { fingerprint, .. } => *fingerprint,
        }
    }
}

/// Loads all YAML files of a directory. A directory without files is valid, and has no domains.
///
/// # Errors
/// [`LoadError`] with all problems.
pub fn load(directory: &Path, options: &Options) -> Result<Loaded, LoadError> {
    build(DirectoryListing::of(directory)?.read(), *options)
}

/// Reads the overlay of `directory`, if there is one, for all later loads with `options`.
///
/// # Errors
/// [`LoadError`] with all problems that do not depend on the rules.
pub fn load_overlay(directory: Option<&Path>, options: &Options) -> Result<(), LoadError> {
    if let (Some(directory), Some(slot)) = (directory, options.overlay) {
        slot.set(Overlay::load(directory)?);
    }
    Ok(())
}

/// Reads an overlay as [`load_overlay`] does, once its files are complete as for [`load_finished`].
///
/// # Errors
/// [`LoadError`] with all problems that do not depend on the rules.
pub fn load_overlay_finished(directory: Option<&Path>, options: &Options) -> Result<(), LoadError> {
    if let (Some(directory), Some(slot)) = (directory, options.overlay) {
        slot.set(Overlay::of(directory, read_finished(directory)?)?);
    }
    Ok(())
}

/// Loads files from memory, given with the names that they would have in a directory.
///
/// # Errors
/// [`LoadError`] with all problems.
pub fn load_files(
    files: impl IntoIterator<Item = (String, Vec<u8>)>,
    options: Options,
) -> Result<Loaded, LoadError> {
    build(Sources::of(files), options)
}

/// Reads the files of a directory that are readable texts, by name.
///
/// # Errors
/// [`LoadError::Directory`] if the directory cannot be read.
pub fn read(directory: &Path) -> Result<BTreeMap<String, String>, LoadError> {
    Ok(DirectoryListing::of(directory)?.read().texts())
}

/// Reads the files of a directory by name, and validates them; `None` if there is no directory.
///
/// # Errors
/// [`LoadError`] with all problems.
pub fn read_valid(directory: &Path, options: Options) -> Result<Option<BTreeMap<String, String>>, LoadError> {
    valid_texts(DirectoryListing::of(directory).map(DirectoryListing::read), options)
}

/// Reads and validates the files of a directory as [`read_valid`] does, once they are complete as for [`load_finished`].
///
/// # Errors
/// [`LoadError`] with all problems.
pub fn read_valid_finished(
    directory: &Path,
    options: Options,
) -> Result<Option<BTreeMap<String, String>>, LoadError> {
    valid_texts(read_finished(directory), options)
}

fn valid_texts(
    sources: Result<Sources, LoadError>,
    options: Options,
) -> Result<Option<BTreeMap<String, String>>, LoadError> {
    let sources = match sources {
        Err(LoadError::Directory { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        sources => sources?,
    };
    build(sources.clone(), options)?;
    Ok(Some(sources.texts()))
}

fn build(sources: Sources, options: Options) -> Result<Loaded, LoadError> {
    let fingerprint = sources.fingerprint(options.strict);
    let allow_empty = sources.allow_empty();
    // The files are freed before their rules are compiled.
    let loaded = compile_raw(fingerprint, options, move |problems| {
        let readable = sources.readable(options.allow_empty, problems);
        let mut files = Vec::new();
        for (name, content) in readable {
            if problems.is_full() {
                break;
            }
            files.extend(reader::read(name, content, yaml::Layer::BASE, problems));
        }
        files
    });
    loaded.map(|loaded| Loaded { allow_empty: loaded.allow_empty || allow_empty, ..loaded })
}

/// Compiles the files that `read` returns. A panic in it is caught and reported as [`LoadError::Broken`], so that a
/// defect neither ends the watcher nor removes the active rules.
///
/// # Errors
/// [`LoadError`] with every problem.
#[doc(hidden)]
pub fn compile_raw(
    fingerprint: Fingerprint,
    options: Options,
    read: impl FnOnce(&mut Problems) -> Vec<RawFile> + UnwindSafe,
) -> Result<Loaded, LoadError> {
    let active = options.overlay.and_then(OverlaySlot::get);
    let compiled = panic::catch_unwind(AssertUnwindSafe(|| {
        let mut problems = Problems::new(options.strict);
        let mut files = read(&mut problems);
        let overlay = active.map(|overlay| overlay.lay(&mut files, &mut problems));
        layers::resolve(&mut files, &mut problems);
        let rules = compile::compile(files, options, &mut problems);
        match problems.finish() {
            Ok(warnings) => {
                let allow_empty = options.allow_empty;
                Ok(Loaded { rules, warnings, fingerprint, overlay, allow_empty })
            }
            Err(report) => Err(LoadError::Invalid { report, fingerprint }),
        }
    }));
    compiled.unwrap_or(Err(LoadError::Broken { fingerprint }))
}
