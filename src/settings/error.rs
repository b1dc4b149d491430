//! Errors of settings.

use std::io::{self, Write as _};
use std::{error::Error, fmt};

pub(super) use tollgate_flags::Problem;

/// Invalid settings, or the requested help.
#[derive(Debug)]
pub enum SettingsError {
    /// All invalid settings.
    Problems {
        /// Command whose arguments are invalid, but for one that starts a server.
        command: Option<String>,
        problems: Vec<Problem>,
    },
    /// Usage error, help or version of the command line parser.
    Usage(Box<clap::Error>),
}

impl SettingsError {
    /// Names the command whose arguments are invalid.
    pub(super) fn of_command(self, command: Option<String>) -> Self {
        match self {
            Self::Problems { problems, .. } => Self::Problems { command, problems },
            Self::Usage(_) => self,
        }
    }

    /// 0 for help and version, 2 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(usage) if !usage.use_stderr() => 0,
            Self::Usage(_) | Self::Problems { .. } => 2,
        }
    }

    /// One line per problem.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Usage(usage) => vec![usage.to_string()],
            Self::Problems { problems, .. } => problems.iter().map(ToString::to_string).collect(),
        }
    }

    /// Prints help to stdout, errors to stderr.
    pub fn print(&self) {
        // A closed stream leaves nothing to do.
        let _ = match self {
            Self::Usage(usage) => usage.print(),
            Self::Problems { .. } => writeln!(io::stderr(), "{self}"),
        };
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(usage) => usage.fmt(f),
            Self::Problems { command, problems } => {
                match command {
                    None => f.write_str("cannot start; invalid settings:")?,
                    Some(command) => write!(f, "invalid arguments of `tollgate {command}`:")?,
                }
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

impl Error for SettingsError {}

impl From<Vec<Problem>> for SettingsError {
    fn from(problems: Vec<Problem>) -> Self {
        Self::Problems { command: None, problems }
    }
}

impl From<clap::Error> for SettingsError {
    fn from(error: clap::Error) -> Self {
        match Problem::of_value(None, &error) {
            Some(problem) => vec![problem].into(),
            None => Self::Usage(Box::new(error)),
        }
    }
}
