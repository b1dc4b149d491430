//! Errors of settings.

use std::fmt;

pub(super) use tollgate_flags::Problem;

/// Invalid settings, or the requested help.
#[derive(Debug)]
pub struct SettingsError {
    cause: ErrorCause,
    /// Command whose arguments are invalid, but for one that starts a server.
    command: Option<String>,
}

#[derive(Debug)]
enum ErrorCause {
    /// All invalid settings.
    Problems(Vec<Problem>),
    /// Usage error, help or version of the command line parser.
    Usage(Box<clap::Error>),
}

impl SettingsError {
    /// Names the command whose arguments are invalid.
    pub(super) fn of_command(self, command: Option<String>) -> Self {
        Self { command, ..self }
    }

    /// 0 for help and version, 2 otherwise.
    pub fn exit_code(&self) -> u8 {
        match &self.cause {
            ErrorCause::Usage(usage) if !usage.use_stderr() => 0,
            ErrorCause::Usage(_) | ErrorCause::Problems(_) => 2,
        }
    }

    /// One line per problem.
    pub fn lines(&self) -> Vec<String> {
        match &self.cause {
            ErrorCause::Usage(usage) => vec![usage.to_string()],
            ErrorCause::Problems(problems) => problems.iter().map(ToString::to_string).collect(),
        }
    }

    /// Prints help to stdout, errors to stderr.
    pub fn print(&self) {
        // A closed stream leaves nothing to do.
        let _ = match &self.cause {
            ErrorCause::Usage(usage) => usage.print(),
            ErrorCause::Problems(_) => {
                std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{self}\n"))
            }
        };
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            ErrorCause::Usage(usage) => usage.fmt(f),
            ErrorCause::Problems(problems) => {
                match &self.command {
                    None => f.write_str("cannot start; invalid settings:")?,
                    Some(command) => write!(f, "invalid arguments of `tollgate {command}`:")?,
                }
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

impl std::error::Error for SettingsError {}

impl From<Vec<Problem>> for SettingsError {
    fn from(problems: Vec<Problem>) -> Self {
        Self { cause: ErrorCause::Problems(problems), command: None }
    }
}

impl From<clap::Error> for SettingsError {
    fn from(error: clap::Error) -> Self {
        let problem = Problem::of_value(None, &error);
        let usage = || ErrorCause::Usage(Box::new(error));
        Self {
            cause: problem.map_or_else(usage, |problem| ErrorCause::Problems(vec![problem])),
            command: None,
        }
    }
}
