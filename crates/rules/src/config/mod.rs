//! Loading of [`Rules`] from YAML files or from a control plane.
//!
//! ```text
//! SourceFiles ──> yaml ── reader ──> raw ── compile ──> Rules
//! ```
//!
//! - [`SourceFiles`] are the contents of a directory, which `tollgate_directory` reads and watches, or come from memory.
//! - `yaml` (with `scalar`) parses them to trees with line numbers.
//! - `reader` checks shapes, types and keys (`vocabulary`), and fills `raw`: the configuration as written.
//! - `layers` lays the overlay over `raw`, and fills the limits that inherit.
//! - `compile` checks the meaning of `raw`, and compiles it to rules.
//! - [`compile_raw`] accepts `raw` from another source, such as a control plane.
//! - [`ReadingFlags`] state the [`Options`] on a command line.
//! - `problem` collects the problems of all stages, each with its file and line.
//!
//! A configuration is loaded as a whole or not at all.

mod compile;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod layers;
#[doc(hidden)]
pub mod problem;
#[doc(hidden)]
pub mod raw;
mod reader;
pub(crate) mod region_table;
pub mod schema;
mod settings;
#[cfg(test)]
pub(crate) mod tests;
mod vocabulary;
#[doc(hidden)]
pub mod yaml;

use std::panic::{self, AssertUnwindSafe, UnwindSafe};
use std::path::Path;

use tollgate_core::descriptor::RequestBounds;
use tollgate_directory::{ALLOW_EMPTY_FILE, DirectoryError, SourceFiles};

pub use tollgate_directory::Fingerprint;

pub use self::layers::{Laid, Overlay, OverlaySlot};
use self::problem::{Path as TreePath, Problems};
pub use self::problem::{Problem, Report, Severity};
pub use self::settings::ReadingFlags;
pub use self::vocabulary::{is_of_reference, nearest};
pub use self::{compile::override_rule, region_table::read_regions};
use self::{raw::RawFile, yaml::Position};
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
        match &*self.warnings.problems {
            [] => self.summary(),
            _ => format!("{}\n{}", self.warnings, self.summary()),
        }
    }
}

/// Error of a configuration that was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Files that were not read.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
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
            Self::Directory(error) => error.fingerprint(),
            Self::Broken { fingerprint } | Self::Invalid { fingerprint, .. } => *fingerprint,
        }
    }
}

/// Loads all YAML files of a directory. A directory without files is valid, and has no domains.
///
/// # Errors
/// [`LoadError`] with all problems.
pub fn load(directory: &Path, options: &Options) -> Result<Loaded, LoadError> {
    compile_files(tollgate_directory::read(directory)?, *options)
}

/// Loads files from memory, given with the names that they would have in a directory.
///
/// # Errors
/// [`LoadError`] with all problems.
pub fn load_files(
    files: impl IntoIterator<Item = (String, Vec<u8>)>,
    options: Options,
) -> Result<Loaded, LoadError> {
    compile_files(SourceFiles::of(files), options)
}

/// Compiles files that were read.
///
/// # Errors
/// [`LoadError`] with all problems.
pub fn compile_files(files: SourceFiles, options: Options) -> Result<Loaded, LoadError> {
    let fingerprint = files.fingerprint(options.strict);
    let allow_empty = files.allow_empty();
    // The files are freed before their rules are compiled.
    let loaded = compile_raw(fingerprint, options, move |problems| {
        if files.are_suspiciously_empty() && !options.allow_empty {
            let message = format!(
                "no files, so every request passes; expected a file that ends in .yaml or .yml, --allow-empty or a \
                 file {ALLOW_EMPTY_FILE}"
            );
            problems.warning(".", Position::WHOLE, TreePath::Root, message);
        }
        report_unread(&files, problems);
        let mut raw = Vec::new();
        for (name, content) in files.readable() {
            if problems.is_full() {
                break;
            }
            raw.extend(reader::read(name, content, yaml::Layer::BASE, problems));
        }
        raw
    });
    loaded.map(|loaded| Loaded { allow_empty: loaded.allow_empty || allow_empty, ..loaded })
}

/// Reports the files that cannot be read, and those that are ignored.
fn report_unread(files: &SourceFiles, problems: &mut Problems) {
    for name in &files.ignored {
        if files.are_all_ignored() {
            let message =
                "no file here ends in .yaml or .yml, so none is loaded; rename the files with rules";
            problems.error(name, Position::WHOLE, TreePath::Root, message);
        } else {
            let message = "ignored: only files that end in .yaml or .yml are loaded";
            problems.warning(name, Position::WHOLE, TreePath::Root, message);
        }
    }
    for (name, reason) in files.unreadable() {
        problems.error(name, Position::WHOLE, TreePath::Root, format!("cannot be read: {reason}"));
    }
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
