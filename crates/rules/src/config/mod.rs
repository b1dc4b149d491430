//! From the YAML that users write, or what a control plane sends, to [`Rules`], and again whenever it changes.
//!
//! ```text
//! directory ── files ──> yaml ── reader ──> raw ── compile ──> Rules
//!     └─ watch: all of it again after a change, unless the content is the same
//! ```
//!
//! - `files` finds and reads the files; `yaml` (with `scalar`) makes trees of them that know their lines.
//! - `reader` checks shapes, types and the names of keys (`vocabulary`) and fills `raw`: what the user wrote.
//! - [`compile_raw`] takes `raw` from another source, such as a control plane.
//! - `compile` gives it its meaning.
//! - `problem` is how all of them say what is wrong: everything at once, each with its file and line.
//! - [`Watcher`] does it again.
//!
//! A configuration is loaded whole or not at all.

mod compile;
mod files;
#[doc(hidden)]
pub mod fingerprint;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[doc(hidden)]
pub mod problem;
#[doc(hidden)]
pub mod raw;
mod reader;
mod scalar;
#[cfg(test)]
mod tests;
mod vocabulary;
mod watch;
#[doc(hidden)]
pub mod yaml;

use std::{
    collections::BTreeMap,
    io,
    panic::{self, UnwindSafe},
    path::{Path, PathBuf},
};

pub use self::vocabulary::is_of_reference;
use self::{
    files::{Listing, Sources},
    problem::Problems,
    raw::RawFile,
};
pub use self::{
    fingerprint::Fingerprint,
    problem::{Problem, Report, Severity},
    watch::Watcher,
};
use crate::Rules;

/// How to load a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether several files may state descriptors of one domain. Their first levels are then put one after
    /// the other, in the order of the files' names.
    pub merge_domains: bool,
    /// Whether warnings are errors.
    pub strict: bool,
}

/// A configuration that was loaded.
#[derive(Debug)]
pub struct Loaded {
    /// What it says.
    pub rules: Rules,
    /// What is likely a mistake.
    pub warnings: Report,
    /// The version of the content.
    pub fingerprint: Fingerprint,
}

impl Loaded {
    /// One line with the numbers of domains and rules.
    pub fn summary(&self) -> String {
        let (domains, rules) = (self.rules.domains().count(), self.rules.rules().count());
        format!("all rate limit configs ok: domains {domains}, rules {rules}")
    }

    /// The warnings, if there are any, and the summary.
    pub fn report(&self) -> String {
        match self.warnings.problems() {
            [] => self.summary(),
            _ => format!("{}\n{}", self.warnings, self.summary()),
        }
    }
}

/// Why a configuration was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The directory can't be read.
    #[error("the configuration directory {} can't be read: {error}", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// A defect of the loader, which its log describes.
    #[error("the loader broke on this configuration; the log says where")]
    Broken {
        /// The version of the content.
        fingerprint: Fingerprint,
    },
    /// Something is wrong with the content.
    #[error("{report}")]
    Invalid {
        /// What is.
        report: Report,
        /// The version of the content.
        fingerprint: Fingerprint,
    },
}

impl LoadError {
    /// The version that was not loaded.
    pub fn fingerprint(&self) -> Fingerprint {
        match self {
            Self::Directory { error, .. } => Fingerprint::of_failure(error),
            Self::Broken { fingerprint } | Self::Invalid { fingerprint, .. } => *fingerprint,
        }
    }
}

/// Loads every YAML file of a directory. One without any is valid and has no domains.
///
/// # Errors
/// [`LoadError`] with everything that is wrong.
pub fn load(directory: &Path, options: &Options) -> Result<Loaded, LoadError> {
    let listing = Listing::of(directory);
    let listing = listing.map_err(|error| LoadError::Directory { directory: directory.to_owned(), error })?;
    let sources = listing.read();
    let fingerprint = sources.fingerprint(options.strict);
    build(&sources, fingerprint, *options)
}

/// Loads files that were read elsewhere, by their names as they would stand in a directory.
///
/// # Errors
/// [`LoadError`] with everything that is wrong.
pub fn load_files(
    files: impl IntoIterator<Item = (String, Vec<u8>)>,
    options: Options,
) -> Result<Loaded, LoadError> {
    let sources = Sources::of(files.into_iter().collect());
    let fingerprint = sources.fingerprint(options.strict);
    build(&sources, fingerprint, options)
}

/// The files of a directory by their names, as far as they can be read and are texts.
///
/// # Errors
/// When the directory can't be read.
pub fn read(directory: &Path) -> Result<BTreeMap<String, String>, LoadError> {
    let listing = Listing::of(directory);
    let listing = listing.map_err(|error| LoadError::Directory { directory: directory.to_owned(), error })?;
    Ok(listing.read().texts())
}

/// The files of a directory by their names, if they are a valid configuration; nothing where there is no directory.
///
/// # Errors
/// [`LoadError`] with everything that is wrong.
pub fn read_valid(directory: &Path, options: Options) -> Result<Option<BTreeMap<String, String>>, LoadError> {
    let listing = match Listing::of(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        listing => listing,
    };
    let listing = listing.map_err(|error| LoadError::Directory { directory: directory.to_owned(), error })?;
    let sources = listing.read();
    let fingerprint = sources.fingerprint(options.strict);
    build(&sources, fingerprint, options)?;
    Ok(Some(sources.texts()))
}

fn build(sources: &Sources, fingerprint: Fingerprint, options: Options) -> Result<Loaded, LoadError> {
    compile_raw(fingerprint, options, |problems| {
        let readable = sources.readable(problems);
        let mut files = Vec::new();
        for (name, content) in readable {
            if problems.is_full() {
                break;
            }
            files.extend(reader::read(name, content, problems));
        }
        files
    })
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
    let compiled = panic::catch_unwind(|| {
        let mut problems = Problems::new(options.strict);
        let files = read(&mut problems);
        let rules = compile::compile(&files, options, &mut problems);
        match problems.finish() {
            Ok(warnings) => Ok(Loaded { rules, warnings, fingerprint }),
            Err(report) => Err(LoadError::Invalid { report, fingerprint }),
        }
    });
    compiled.unwrap_or(Err(LoadError::Broken { fingerprint }))
}
