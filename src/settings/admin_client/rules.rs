//! Arguments of `tollgate rules`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{AdminClientSettings, AdminCommand, connection::ConnectionFlags};
use crate::settings::{
    error::Problem,
    parsers::{count, number},
};

#[derive(Args, Debug)]
pub(in crate::settings) struct RulesFlags {
    #[command(subcommand)]
    subcommand: RulesSubcommand,
    #[command(flatten)]
    connection: ConnectionFlags,
}

#[derive(Debug, Subcommand)]
enum RulesSubcommand {
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
        #[arg(value_name = "VERSION|DIR")]
        what: PathBuf,
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

/// Command about the rule versions.
#[derive(Clone, Debug)]
pub enum RulesCommand {
    /// List versions, at most this number.
    List(usize),
    /// Show the files of a version, or write them to a directory.
    Show(VersionSelector, Option<PathBuf>),
    /// Compare with a version.
    Diff(DiffSource, Option<VersionSelector>),
    /// Activate the files of a directory as a new version.
    Apply {
        /// Directory of the rules.
        directory: PathBuf,
        /// Comment of the version.
        comment: String,
        /// Base of the version. `None`: the current one.
        based_on: Option<BaseVersion>,
        /// Whether to override the guardrails.
        force: bool,
    },
    /// Activate an earlier version again.
    Rollback(Rollback),
}

/// Rollback to an earlier version.
#[derive(Clone, Debug)]
pub struct Rollback {
    /// Earlier version.
    pub to: u64,
    /// Comment of the version.
    pub comment: String,
    /// Version expected to be active. `None`: any.
    pub based_on: Option<u64>,
    /// Whether to override the guardrails.
    pub force: bool,
}

impl RulesFlags {
    pub(in crate::settings) fn resolve(self) -> Result<AdminClientSettings, Problem> {
        let command = match self.subcommand {
            RulesSubcommand::List { limit } => RulesCommand::List(limit),
            RulesSubcommand::Show { version, to } => RulesCommand::Show(version, to),
            RulesSubcommand::Diff { what, against } => diff(what, against),
            RulesSubcommand::Apply { directory, comment, based_on, force } => {
                RulesCommand::Apply { directory, comment, based_on, force }
            }
            RulesSubcommand::Rollback { to, comment, based_on, force } => {
                RulesCommand::Rollback(Rollback { to, comment, based_on, force })
            }
        };
        self.connection.resolve(AdminCommand::Rules(command))
    }
}

fn diff(what: PathBuf, against: Option<VersionSelector>) -> RulesCommand {
    match what.to_str().and_then(|text| which(text).ok()) {
        Some(version) => RulesCommand::Diff(DiffSource::Version(version), against),
        None => RulesCommand::Diff(DiffSource::Directory(what), against),
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
