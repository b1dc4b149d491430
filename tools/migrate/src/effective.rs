//! The settings that an environment resolves to, as the fewest flags with the same effect.

use std::{collections::BTreeSet, ffi::OsString, path::PathBuf};

use serde::Serialize;
use tollgate::settings::{self, Environment, EnvironmentFlags, Settings, boolean};
use tollgate::{fleet::WebhookUrl, redact::MASK, store::redis::RedisUrl};

use crate::plan::{self, VariableReport};

/// A setting of tollgate.
#[derive(Debug, Serialize)]
pub struct Setting {
    /// Flag, with its dashes.
    pub flag: String,
    /// Variable.
    pub variable: String,
    /// Value, with `***` in place of secrets.
    pub value: String,
    /// Whether the value has a secret.
    pub is_secret: bool,
    /// Variables that set it.
    pub from: Vec<String>,
}

/// The settings of `tollgate serve` that an environment resolves to.
#[derive(Debug)]
pub(crate) struct EffectiveSettings {
    /// The settings; `None` if startup would fail.
    pub(crate) settings: Option<Box<Settings>>,
    /// Flags that are not at their defaults.
    pub(crate) changed: Vec<Setting>,
    /// The changed flags with their values, secrets included, as words of a command line.
    #[cfg(test)]
    pub(crate) words: Vec<OsString>,
    /// Startup warnings about variables without effect.
    pub(crate) notices: Vec<String>,
    /// Reasons why startup would fail.
    pub(crate) problems: Vec<String>,
    /// Effect of each variable.
    pub(crate) variables: Vec<VariableReport>,
    /// Variables of neither envoyproxy/ratelimit nor tollgate.
    pub(crate) others: Vec<String>,
    /// Directory of the rules, if the variables name one.
    pub(crate) directory: Option<PathBuf>,
    /// Whether envoyproxy/ratelimit reads files whose names begin with a dot.
    pub(crate) reads_hidden_files: bool,
}

impl EffectiveSettings {
    /// Resolves an environment like `tollgate serve`, without any other input.
    pub(crate) fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let variables: Vec<_> = variables.into_iter().collect();
        let names: Vec<String> =
            variables.iter().filter_map(|(name, _)| name.clone().into_string().ok()).collect();
        let environment = Environment::new(variables);
        let found = settings::serving(&environment);
        let words = last_of_each(found.words.clone());
        let (settings, of_words) = match settings::served(&words) {
            Ok(settings) => (Some(settings), Vec::new()),
            Err(error) => (None, error.lines()),
        };
        let needed = match &settings {
            Some(settings) => needed(words.clone(), settings),
            None => words.clone(),
        };
        let changed: Vec<Setting> = needed.iter().filter_map(|word| setting(word, &found)).collect();
        let changed_flags: Vec<String> =
            changed.iter().map(|changed| changed.flag.trim_start_matches('-').to_owned()).collect();
        let problems: Vec<String> = found
            .problems
            .iter()
            .map(ToString::to_string)
            .chain(of_words.into_iter().filter(|_| found.problems.is_empty()))
            .collect();
        // An environment with a problem has no settings, although some may be valid.
        let (settings, changed) = if problems.is_empty() { (settings, changed) } else { (None, Vec::new()) };
        let (variables, others) = plan::report(names, &environment, &found, &changed_flags);
        let directory =
            words.iter().find_map(|word| word.to_str()?.strip_prefix("--config=").map(PathBuf::from));
        let reads_hidden_files = environment.get("RUNTIME_IGNOREDOTFILES").map(boolean) != Some(Ok(true));
        Self {
            settings,
            changed,
            #[cfg(test)]
            words: needed,
            notices: found.notices,
            problems,
            variables,
            others,
            directory,
            reads_hidden_files,
        }
    }
}

/// The last word of each flag, which applies, or all words of a flag that accumulates.
fn last_of_each(words: Vec<OsString>) -> Vec<OsString> {
    let mut known = BTreeSet::new();
    let counts = |word: &OsString| known.insert(flag_of(word)) || settings::collects(&flag_of(word));
    let mut kept: Vec<OsString> = words.into_iter().rev().filter(counts).collect();
    kept.reverse();
    kept
}

/// The words that are necessary for the settings.
fn needed(mut words: Vec<OsString>, settings: &Settings) -> Vec<OsString> {
    let mut at = 0;
    while at < words.len() {
        let word = words.remove(at);
        if !settings::served(&words).is_ok_and(|others| *others == *settings) {
            words.insert(at, word);
            at = at.saturating_add(1);
        }
    }
    words
}

fn flag_of(word: &OsString) -> String {
    word.to_string_lossy().split('=').next().unwrap_or_default().to_owned()
}

/// The flag that a word sets.
fn setting(word: &OsString, found: &EnvironmentFlags) -> Option<Setting> {
    let (flag, value) = word.to_str()?.split_once('=')?;
    let name = flag.trim_start_matches('-');
    let said = found.origins.iter().rev().filter(|(known, _)| known == name);
    let said = said.take(if settings::collects(flag) { usize::MAX } else { 1 });
    let mut from: Vec<String> =
        said.flat_map(|(_, names)| names.split(" with ").map(ToOwned::to_owned)).collect();
    from.sort_unstable();
    let (variable, shown) = (settings::variable(name), shown(name, value));
    Some(Setting { flag: flag.to_owned(), variable, is_secret: shown != value, value: shown, from })
}

/// Headers with masked values.
fn without_values(headers: &str) -> String {
    let names = headers.split(',').map(|pair| pair.split('=').next().unwrap_or_default());
    names.map(|name| format!("{name}={MASK}")).collect::<Vec<_>>().join(",")
}

/// The value with its secrets masked. Control characters suggest a PEM key in place of the path of its file.
fn shown(flag: &str, value: &str) -> String {
    let masked = match flag {
        "store" => value.parse::<RedisUrl>().ok().map(|servers| servers.to_string()),
        "webhook-url" => value.parse::<WebhookUrl>().ok().map(|url| url.to_string()),
        flag if flag.ends_with("headers") && value.contains('=') => Some(without_values(value)),
        _ if value.contains(char::is_control) => Some(MASK.to_owned()),
        _ => None,
    };
    masked.filter(|masked| masked.contains(MASK)).unwrap_or_else(|| value.to_owned())
}
