//! The environment as a source of flags.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use clap::{Command, error::ErrorKind};

use crate::{Problem, boolean};

/// Prefix of the variables of tollgate.
pub const PREFIX: &str = "TOLLGATE_";

/// Variables of a process, without blanks around their values. An empty variable counts as unset.
#[derive(Debug)]
pub struct Environment {
    /// Values of those that are set.
    pub variables: BTreeMap<String, OsString>,
    /// Names of empty variables.
    pub empty: BTreeSet<String>,
}

/// Value of a flag that a variable sets.
#[derive(Debug)]
pub struct Setting {
    /// Flag, without its dashes.
    pub flag: &'static str,
    /// Names of the variables, for messages.
    pub variable: String,
    /// Value of the flag.
    pub value: String,
}

/// Flags, notices and problems of a command that come from the environment.
#[derive(Debug, Default)]
pub struct EnvironmentFlags {
    /// Words of a command line, in ascending precedence.
    pub words: Vec<OsString>,
    /// Flags of these words, each with the variables that set it.
    pub origins: Vec<(String, String)>,
    /// Warnings about variables without effect.
    pub notices: Vec<String>,
    /// Invalid variables.
    pub problems: Vec<Problem>,
}

impl Environment {
    /// The variables of a process.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let named = variables.into_iter();
        let named = named.filter_map(|(name, value)| Some((name.into_string().ok()?, trimmed(value))));
        // Kubernetes creates such variables for a Service named `statsd`, `grpc` or `debug`; they are not ports of the
        // reference.
        let named = named.filter(|(name, value)| {
            name.starts_with(PREFIX) || !is_link_to_port(name, value.to_str().unwrap_or_default())
        });
        let (empty, variables): (BTreeMap<_, _>, _) = named.partition(|(_, value)| value.is_empty());
        Self { variables, empty: empty.into_keys().collect() }
    }

    /// The value of a variable, unless it is unset, empty or not UTF-8.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name)?.to_str()
    }

    /// The problem of a variable that is not a boolean.
    pub fn invalid_boolean(&self, name: &str) -> Option<Problem> {
        boolean(self.get(name)?).err().map(|reason| self.invalid(name, &reason))
    }

    /// The problem of a variable with an invalid text.
    pub fn invalid(&self, name: &str, reason: &str) -> Problem {
        Problem::of_text(name, self.get(name).unwrap_or_default(), reason)
    }
}

impl EnvironmentFlags {
    /// Adds a flag if its value is valid. Values of `with_lines` may have lines.
    pub fn add(&mut self, verb: &Command, flag: &str, variable: &str, value: &OsStr, with_lines: &[&str]) {
        let (word, invalid) = alone(verb, flag, value);
        // Another word may have the flag that this one requires.
        let invalid = invalid.filter(|error| error.kind() != ErrorKind::MissingRequiredArgument);
        let invalid = invalid.map(|error| {
            let problem = Problem::of_value(Some(variable), &error);
            problem.unwrap_or_else(|| Problem::new(variable, "invalid value"))
        });
        let multi_line = multi_line(std::slice::from_ref(&word), with_lines).pop();
        match multi_line.map(|problem| problem.of(variable)).or(invalid) {
            None => {
                self.words.push(word);
                self.origins.push((flag.to_owned(), variable.to_owned()));
            }
            // OpenTelemetry variables are often set cluster-wide, and must not fail startup.
            Some(problem) if variable.split(" with ").any(|name| name.starts_with("OTEL_")) => {
                self.notices.push(format!("ignored: {problem}"));
            }
            Some(problem) => self.problems.push(problem),
        }
    }
}

/// A word of a command line, or a value, without blanks around it, or around the value of a flag.
pub fn trimmed(word: OsString) -> OsString {
    let Some(text) = word.to_str().map(str::trim) else { return word };
    match text.split_once('=') {
        Some((flag, value)) if flag.starts_with("--") => format!("{flag}={}", value.trim_start()).into(),
        _ => text.into(),
    }
}

/// Problems of words with control characters, which would break lines of the log, but for values of the flags
/// `with_lines`.
pub fn multi_line(words: &[OsString], with_lines: &[&str]) -> Vec<Problem> {
    let texts = words.iter().map(|word| word.to_str().unwrap_or_default());
    let before = std::iter::once("").chain(texts.clone());
    let named = texts.zip(before).map(|(word, before)| match word.split_once('=') {
        Some((flag, _)) if flag.starts_with("--") => (flag, word),
        _ if before.starts_with("--") && !before.contains('=') => (before, word),
        _ => ("command line", word),
    });
    let broken = named.filter(|(flag, word)| word.contains(char::is_control) && !with_lines.contains(flag));
    broken.map(|(flag, word)| Problem::of_text(flag, word, "")).collect()
}

/// The word that states a flag of `verb`, and its error if it is the only one and no argument is required.
pub fn alone(verb: &Command, flag: &str, value: &OsStr) -> (OsString, Option<clap::Error>) {
    let mut word = OsString::from(format!("--{flag}="));
    word.push(value);
    let verb = verb.clone().mut_args(|arg| arg.required(false));
    let verb = verb.subcommand_required(false).arg_required_else_help(false);
    let error = verb.try_get_matches_from([OsStr::new("tollgate"), &word]).err();
    (word, error)
}

/// Whether a variable is the link to the first port of a Service.
pub fn is_link_to_port(name: &str, value: &str) -> bool {
    let is_url = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    name.ends_with("_PORT") && is_url
}
