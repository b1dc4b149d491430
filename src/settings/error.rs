//! Why there are no settings.

use std::fmt;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// One setting that is wrong. Holds no value, as a value may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// The flag or the variable.
    name: String,
    /// What is wrong with it.
    reason: String,
}

impl Problem {
    pub(super) fn new(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.into(), reason: reason.into() }
    }

    /// What is wrong with a value, without the value.
    ///
    /// `None` when the error is about something else: an unknown flag, a call for help.
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

    /// A word that is none of ours, without the word, unless it is like one of ours: it may be a value in the wrong
    /// place.
    fn of_word(error: &clap::Error) -> Option<Self> {
        let is_flag = || {
            let word = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
            // The first line of a key in PEM form begins like one.
            let of_a_flag = |letter: char| letter.is_ascii_lowercase() || letter == '-';
            word.starts_with('-') && word.chars().all(of_a_flag)
        };
        let is_unknown = match error.kind() {
            ErrorKind::InvalidSubcommand => error.get(ContextKind::SuggestedSubcommand).is_none(),
            ErrorKind::UnknownArgument => !is_flag(),
            _ => false,
        };
        is_unknown.then(|| {
            Self::new("command line", "a word that is no flag and no command; see `tollgate --help`")
        })
    }

    /// What is wrong with the value of the variable `name`, as parsing it as a flag told.
    pub(super) fn of_variable(name: &str, error: &clap::Error) -> Self {
        Self::of_value(Some(name), error).unwrap_or_else(|| Self::new(name, "expected another value"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.reason)
    }
}

/// Why there are no settings, or the help that was asked for instead.
#[derive(Debug)]
pub struct SettingsError(Kind);

#[derive(Debug)]
enum Kind {
    /// Settings that make no sense, all of them.
    Problems(Vec<Problem>),
    /// What the parser of the command line says, in its own words.
    Usage(Box<clap::Error>),
}

impl SettingsError {
    /// 0 when help or the version was asked for, 2 otherwise.
    pub fn exit_code(&self) -> u8 {
        match &self.0 {
            Kind::Usage(usage) if !usage.use_stderr() => 0,
            Kind::Usage(_) | Kind::Problems(_) => 2,
        }
    }

    /// Each thing that is wrong.
    pub(super) fn lines(&self) -> Vec<String> {
        match &self.0 {
            Kind::Usage(usage) => vec![usage.to_string()],
            Kind::Problems(problems) => problems.iter().map(ToString::to_string).collect(),
        }
    }

    /// Tells the person at the terminal: help goes to stdout, errors to stderr.
    pub fn print(&self) {
        // Nothing can be done when nobody reads.
        let _ = match &self.0 {
            Kind::Usage(usage) => usage.print(),
            Kind::Problems(_) => std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{self}\n")),
        };
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Usage(usage) => usage.fmt(f),
            Kind::Problems(problems) => {
                f.write_str("cannot start, these settings are wrong:")?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

impl std::error::Error for SettingsError {}

impl From<Vec<Problem>> for SettingsError {
    fn from(problems: Vec<Problem>) -> Self {
        Self(Kind::Problems(problems))
    }
}

impl From<clap::Error> for SettingsError {
    fn from(error: clap::Error) -> Self {
        match Problem::of_value(None, &error).or_else(|| Problem::of_word(&error)) {
            Some(problem) => Self(Kind::Problems(vec![problem])),
            None => Self(Kind::Usage(Box::new(error))),
        }
    }
}
