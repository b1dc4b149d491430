//! Problems of settings.

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
    pub fn new(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.into(), reason: reason.into() }
    }

    /// The problem under another name.
    pub fn of(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Problem of an invalid text.
    pub fn of_text(name: impl Into<String>, text: &str, reason: &str) -> Self {
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
    pub fn of_value(name: Option<&str>, error: &clap::Error) -> Option<Self> {
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
        let is_secret = std::error::Error::source(error).is_some_and(|reason| reason.is::<Secret>());
        let text = if is_secret && !text.contains(char::is_control) { "" } else { &text };
        Some(Self::of_text(name.unwrap_or(flag), text, &reason))
    }
}

/// Reason why a value is invalid that is a secret, or may be one by mistake; messages do not show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Secret(pub &'static str);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}: {}", self.name, self.reason);
        // A name may have any character too.
        f.write_str(&text.replace(char::is_control, "\u{fffd}"))
    }
}
