//! Arguments of `tollgate rules`.

use std::{ffi::OsString, path::PathBuf};

use clap::{
    Subcommand,
    builder::{OsStringValueParser, TypedValueParser as _},
};

use crate::settings::parsers::{count, number};

/// Command about the rule versions.
#[derive(Clone, Debug, Subcommand)]
pub enum RulesCommand {
    /// List the versions, newest first.
    List {
        /// Maximum number of versions.
        #[arg(long, value_name = "COUNT", default_value = "20", value_parser = count::<usize>)]
        limit: usize,
    },
    /// Show the files of a version.
    Show {
        /// Version: a number, or `current`.
        #[arg(value_name = "VERSION", default_value = "current", value_parser = which)]
        version: VersionSelector,
        /// Directory, empty or new, to write the files to instead of showing them.
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
    /// Show the changes of a version, or the changes that a directory would make.
    Diff {
        /// Version, or directory (`./12` for one that is named like a version).
        #[arg(value_name = "VERSION|DIR", value_parser = OsStringValueParser::new().map(diff_source))]
        what: DiffSource,
        /// Version to compare with. Default: the base of the version; for a directory, the current version.
        #[arg(long, value_name = "VERSION", value_parser = which)]
        against: Option<VersionSelector>,
    },
    /// Activate the files of a directory as a new version.
    Apply {
        /// Directory of the rules.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Comment of the version, for the audit log.
        #[arg(long, value_name = "TEXT")]
        comment: String,
        /// Version that the files are based on, or `none`: if another one is current, nothing changes. Default: the version
        /// that `rules show --to` recorded in the directory, or else the current version.
        #[arg(long, value_name = "NUMBER", value_parser = based_on)]
        based_on: Option<BaseVersion>,
        /// Skips the guardrails: accepts rules that deny all requests of a domain, or remove a domain with traffic.
        #[arg(long)]
        force: bool,
    },
    /// Activate the files of an earlier version again.
    Rollback {
        /// Earlier version.
        #[arg(value_name = "NUMBER", value_parser = number::<u64>)]
        to: u64,
        /// Comment of the version, for the audit log.
        #[arg(long, value_name = "TEXT", default_value = "")]
        comment: String,
        /// Version expected to be active; if another one is, nothing changes. Default: any.
        #[arg(long, value_name = "NUMBER", value_parser = number::<u64>)]
        based_on: Option<u64>,
        /// Skips the guardrails.
        #[arg(long)]
        force: bool,
    },
}

/// Rule version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionSelector {
    /// Current version.
    Current,
    /// Version with this number.
    Number(u64),
}

/// Base of a new version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseVersion {
    /// No version exists yet.
    Nothing,
    /// Version with this number.
    Number(u64),
}

impl BaseVersion {
    /// Number in the API.
    pub const fn number(self) -> Option<u64> {
        match self {
            Self::Nothing => None,
            Self::Number(number) => Some(number),
        }
    }
}

/// Subject of a comparison with a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffSource {
    /// Version.
    Version(VersionSelector),
    /// Files of a directory.
    Directory(PathBuf),
}

fn diff_source(words: OsString) -> DiffSource {
    match words.to_str().and_then(|text| which(text).ok()) {
        Some(version) => DiffSource::Version(version),
        None => DiffSource::Directory(words.into()),
    }
}

fn which(text: &str) -> Result<VersionSelector, String> {
    match text {
        "current" => Ok(VersionSelector::Current),
        text => text
            .parse()
            .map(VersionSelector::Number)
            .map_err(|_| "expected the number of a version, or current".to_owned()),
    }
}

fn based_on(text: &str) -> Result<BaseVersion, String> {
    match text {
        "none" => Ok(BaseVersion::Nothing),
        text => text
            .parse()
            .map(BaseVersion::Number)
            .map_err(|_| "expected the number of a version, or none".to_owned()),
    }
}
