//! `tollgate rules`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{OperatorSettings, Task, connection::ConnectionFlags};
use crate::settings::{error::Problem, parsers::count};

#[derive(Args, Debug)]
pub(in crate::settings) struct RulesFlags {
    #[command(subcommand)]
    verb: RulesVerb,
    #[command(flatten)]
    connection: ConnectionFlags,
}

#[derive(Debug, Subcommand)]
enum RulesVerb {
    /// List the versions, newest first.
    List {
        /// Versions at the most.
        #[arg(long, value_name = "COUNT", default_value = "20", value_parser = count)]
        limit: usize,
    },
    /// Show the files of a version.
    Show {
        /// The version: a number, or `current`.
        #[arg(value_name = "VERSION", default_value = "current", value_parser = which)]
        version: Which,
        /// Write the files into this directory, which is to be empty or new, in place of showing them.
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
    /// Show what a version changed, or what a directory would change.
    Diff {
        /// A version, or a directory (`./12` for one that is named like a version).
        #[arg(value_name = "VERSION|DIR")]
        what: PathBuf,
        /// The version to compare with. Default: the one that the version is based on; for a directory, the current one.
        #[arg(long, value_name = "VERSION", value_parser = which)]
        against: Option<Which>,
    },
    /// Make the files of a directory the current version.
    Apply {
        /// Directory with the rules.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Why.
        #[arg(long, value_name = "TEXT")]
        comment: String,
        /// The version that these files were made from, or `none`: if another one is current, nothing is changed.
        /// Default: the one that `rules show --to` noted in the directory, else the one that is current when this is asked.
        #[arg(long, value_name = "NUMBER", value_parser = based_on)]
        based_on: Option<BasedOn>,
        /// Apply also what is likely a mistake: what denies everything in a domain, or drops one that has traffic.
        #[arg(long)]
        force: bool,
    },
    /// Make the files of an earlier version current again.
    Rollback {
        /// That version.
        #[arg(value_name = "NUMBER")]
        to: u64,
        /// Why.
        #[arg(long, value_name = "TEXT", default_value = "")]
        comment: String,
        /// The version that has to be current; if another one is, nothing is changed. Default: any.
        #[arg(long, value_name = "NUMBER")]
        based_on: Option<u64>,
        /// Apply also what is likely a mistake.
        #[arg(long)]
        force: bool,
    },
}

/// A version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one that is current.
    Current,
    /// That one.
    Number(u64),
}

/// The version that a new one is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BasedOn {
    /// There is none yet.
    Nothing,
    /// That one.
    Number(u64),
}

impl BasedOn {
    /// As the API has it.
    pub const fn number(self) -> Option<u64> {
        match self {
            Self::Nothing => None,
            Self::Number(number) => Some(number),
        }
    }
}

/// What is compared with a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// Another version.
    Version(Which),
    /// The files of a directory.
    Directory(PathBuf),
}

/// What is asked about the versions of the rules.
#[derive(Clone, Debug)]
pub enum RulesTask {
    /// Which there are, at the most so many.
    List(usize),
    /// What is in one, to be shown or written into a directory.
    Show(Which, Option<PathBuf>),
    /// How something differs from a version.
    Diff(Compared, Option<Which>),
    /// To make a version of a directory.
    Apply {
        /// The directory.
        directory: PathBuf,
        /// Why.
        comment: String,
        /// The version that it is made from; the current one unless said.
        based_on: Option<BasedOn>,
        /// Whether also what is likely a mistake is applied.
        force: bool,
    },
    /// To go back to a version.
    Rollback(Rollback),
}

/// What is asked for in order to go back.
#[derive(Clone, Debug)]
pub struct Rollback {
    /// The version.
    pub to: u64,
    /// Why.
    pub comment: String,
    /// The version that has to be current, if it matters.
    pub based_on: Option<u64>,
    /// Whether also what is likely a mistake is applied.
    pub force: bool,
}

impl RulesFlags {
    pub(in crate::settings) fn resolve(self) -> Result<OperatorSettings, Problem> {
        let task = match self.verb {
            RulesVerb::List { limit } => RulesTask::List(limit),
            RulesVerb::Show { version, to } => RulesTask::Show(version, to),
            RulesVerb::Diff { what, against } => diff(what, against),
            RulesVerb::Apply { directory, comment, based_on, force } => {
                RulesTask::Apply { directory, comment, based_on, force }
            }
            RulesVerb::Rollback { to, comment, based_on, force } => {
                RulesTask::Rollback(Rollback { to, comment, based_on, force })
            }
        };
        self.connection.resolve(Task::Rules(task))
    }
}

fn diff(what: PathBuf, against: Option<Which>) -> RulesTask {
    match what.to_str().and_then(|text| which(text).ok()) {
        Some(version) => RulesTask::Diff(Compared::Version(version), against),
        None => RulesTask::Diff(Compared::Directory(what), against),
    }
}

fn which(text: &str) -> Result<Which, String> {
    match text {
        "current" => Ok(Which::Current),
        text => text
            .parse()
            .map(Which::Number)
            .map_err(|_| "expected the number of a version, or current".to_owned()),
    }
}

fn based_on(text: &str) -> Result<BasedOn, String> {
    match text {
        "none" => Ok(BasedOn::Nothing),
        text => text
            .parse()
            .map(BasedOn::Number)
            .map_err(|_| "expected the number of a version, or none".to_owned()),
    }
}
