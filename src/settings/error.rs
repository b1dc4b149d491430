//! Errors of settings.

use std::fmt;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use tollgate_runtime::redact;

/// An invalid setting, with its text as far as that is no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Flag or variable.
    name: String,
    /// Reason.
    reason: String,
}

impl Problem {
    pub(super) fn new(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.into(), reason: reason.into() }
    }

    /// The problem under another name.
    pub(super) fn of(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Problem of an invalid text.
    pub(super) fn of_text(name: impl Into<String>, text: &str, reason: &str) -> Self {
        if text.contains(char::is_control) {
            return Self::new(
                name,
                "has a line break or another control character; expected one line of text",
            );
        }
        let shown = format!("`{}`", redact::text(text));
        let is_hidden = text.is_empty() || shown == format!("`{}`", redact::MASK) || reason.contains(&shown);
        match reason.strip_prefix("expected") {
            _ if is_hidden => Self::new(name, reason),
            Some(expected) => Self::new(name, format!("{shown} is invalid; expected{expected}")),
            None => Self::new(name, format!("{shown}: {reason}")),
        }
    }

    /// Problem of an invalid value.
    ///
    /// `None` for other errors, such as an unknown flag, and for help.
    pub(super) fn of_value(name: Option<&str>, error: &clap::Error) -> Option<Self> {
        let context = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
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
        let argument = context(ContextKind::InvalidArg);
        let flag = match argument.starts_with('-') {
            true => argument.split([' ', '=', '[']).next().unwrap_or_default(),
            false => argument.trim_end_matches("..."),
        };
        let text = context(ContextKind::InvalidValue);
        // Values of headers and the path of a webhook are secrets; files of keys may be mistaken for their content.
        let is_secret = flag != "--response-headers"
            && ["headers", "webhook-url", "-tls", "cert"].iter().any(|end| flag.ends_with(end));
        let text = if is_secret && !text.contains(char::is_control) { "" } else { &text };
        Some(Self::of_text(name.unwrap_or(flag), text, &reason))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}: {}", self.name, self.reason);
        // A name may have any character too.
        f.write_str(&text.replace(char::is_control, "\u{fffd}"))
    }
}

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
