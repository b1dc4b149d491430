//! Errors of settings.

use std::fmt;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// An invalid setting, without its value, which may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Flag or variable.
    name: String,
    /// Reason.
    reason: String,
}

impl Problem {
    pub(super) fn new(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.into(), reason: reason.into() }
    }

    /// Problem of an invalid value, without the value.
    ///
    /// `None` for other errors, such as an unknown flag, and for help.
    fn of_value(name: Option<&str>, error: &clap::Error) -> Option<Self> {
        let context = |kind| error.get(kind).map(ToString::to_string);
        let reason = match error.kind() {
            ErrorKind::ValueValidation => std::error::Error::source(error)?.to_string(),
            ErrorKind::InvalidValue => match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(known)) if !known.is_empty() => {
                    format!("expected one of {}", known.join(", "))
                }
                _ => "expected a value".to_owned(),
            },
            _ => return None,
        };
        let flag = context(ContextKind::InvalidArg).unwrap_or_default();
        let flag = flag.split([' ', '=', '[']).next().unwrap_or_default();
        Some(Self::new(name.unwrap_or(flag), reason))
    }

    /// Problem of an unknown word, without the word, which may be a misplaced secret, unless it is similar to a known
    /// one.
    fn of_word(error: &clap::Error) -> Option<Self> {
        let is_flag = || {
            let word = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
            // The first line of a PEM key begins with dashes too.
            let of_a_flag = |letter: char| letter.is_ascii_lowercase() || letter == '-';
            word.starts_with('-') && word.chars().all(of_a_flag)
        };
        let is_unknown = match error.kind() {
            ErrorKind::InvalidSubcommand => error.get(ContextKind::SuggestedSubcommand).is_none(),
            ErrorKind::UnknownArgument => !is_flag(),
            _ => false,
        };
        is_unknown.then(|| {
            Self::new("command line", "unknown argument; expected a flag or a command of `tollgate --help`")
        })
    }

    /// Problem of the variable `name`, from parsing its value as a flag.
    pub(super) fn of_variable(name: &str, error: &clap::Error) -> Self {
        Self::of_value(Some(name), error).unwrap_or_else(|| Self::new(name, "invalid value"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.reason)
    }
}

/// Invalid settings, or the requested help.
#[derive(Debug)]
pub struct SettingsError(ErrorCause);

#[derive(Debug)]
enum ErrorCause {
    /// All invalid settings.
    Problems(Vec<Problem>),
    /// Usage error, help or version of the command line parser.
    Usage(Box<clap::Error>),
}

impl SettingsError {
    /// 0 for help and version, 2 otherwise.
    pub fn exit_code(&self) -> u8 {
        match &self.0 {
            ErrorCause::Usage(usage) if !usage.use_stderr() => 0,
            ErrorCause::Usage(_) | ErrorCause::Problems(_) => 2,
        }
    }

    /// One line per problem.
    pub(super) fn lines(&self) -> Vec<String> {
        match &self.0 {
            ErrorCause::Usage(usage) => vec![usage.to_string()],
            ErrorCause::Problems(problems) => problems.iter().map(ToString::to_string).collect(),
        }
    }

    /// Prints help to stdout, errors to stderr.
    pub fn print(&self) {
        // A closed stream leaves nothing to do.
        let _ = match &self.0 {
            ErrorCause::Usage(usage) => usage.print(),
            ErrorCause::Problems(_) => {
                std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{self}\n"))
            }
        };
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ErrorCause::Usage(usage) => usage.fmt(f),
            ErrorCause::Problems(problems) => {
                f.write_str("cannot start; invalid settings:")?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

impl std::error::Error for SettingsError {}

impl From<Vec<Problem>> for SettingsError {
    fn from(problems: Vec<Problem>) -> Self {
        Self(ErrorCause::Problems(problems))
    }
}

impl From<clap::Error> for SettingsError {
    fn from(error: clap::Error) -> Self {
        match Problem::of_value(None, &error).or_else(|| Problem::of_word(&error)) {
            Some(problem) => Self(ErrorCause::Problems(vec![problem])),
            None => Self(ErrorCause::Usage(Box::new(error))),
        }
    }
}
