//! What an environment comes to, as the flags that say the same: what `tollgate migrate` tells.

use std::{collections::BTreeSet, ffi::OsString, path::PathBuf};

use super::{
    Settings, cli,
    environment::{self, Environment, Found},
    outcome::{self, Judged},
    value::boolean,
};
use crate::store::redis::RedisUrl;

/// What stands in place of a secret.
pub const MASK: &str = "***";

/// What an environment comes to for `tollgate serve`.
#[derive(Debug)]
pub struct Translation {
    /// What would run; nothing where something is wrong.
    pub settings: Option<Box<Settings>>,
    /// Every setting that is not at its default.
    pub chosen: Vec<Chosen>,
    /// What is ignored, and told at the start.
    pub notices: Vec<String>,
    /// Why it would not start.
    pub problems: Vec<String>,
    /// What becomes of each variable.
    pub variables: Vec<Judged>,
    /// Variables of neither the reference nor tollgate.
    pub others: Vec<String>,
    /// The directory with the rules, where the variables name one.
    pub directory: Option<PathBuf>,
    /// Whether the reference reads files whose names begin with a dot.
    pub reads_hidden_files: bool,
}

/// A setting that is not at its default. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The flag, with its dashes.
    pub flag: String,
    /// Its variable.
    pub variable: String,
    /// The value for people: secrets are masked.
    pub shown: String,
    /// The variables that it comes from, sorted.
    pub from: Vec<String>,
    /// The value itself.
    value: OsString,
}

impl std::fmt::Debug for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Chosen").field(&self.flag).field(&self.shown).finish()
    }
}

impl Chosen {
    /// The flag with its value, secrets and all, as a word of a command line.
    pub fn word(&self) -> OsString {
        let mut word = OsString::from(format!("{}=", self.flag));
        word.push(&self.value);
        word
    }

    /// Whether its value is not shown, or not all of it.
    pub fn is_secret(&self) -> bool {
        self.shown.contains(MASK)
    }
}

impl Translation {
    /// Reads an environment as `tollgate serve` would, but without looking at anything else.
    pub fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let variables: Vec<_> = variables.into_iter().collect();
        let names: Vec<String> =
            variables.iter().filter_map(|(name, _)| name.clone().into_string().ok()).collect();
        let environment = Environment::new(variables);
        let found = cli::serving(&environment);
        let words = last_of_each(found.words.clone());
        let (settings, of_words) = match cli::served(&words) {
            Ok(settings) => (Some(settings), Vec::new()),
            Err(error) => (None, error.lines()),
        };
        let needed = match &settings {
            Some(settings) => needed(words.clone(), settings),
            None => words.clone(),
        };
        let chosen: Vec<Chosen> = needed.iter().filter_map(|word| chosen_by(word, &found)).collect();
        let flags: Vec<String> =
            chosen.iter().map(|chosen| chosen.flag.trim_start_matches('-').to_owned()).collect();
        let problems: Vec<String> = found
            .problems
            .iter()
            .map(ToString::to_string)
            .chain(of_words.into_iter().filter(|_| found.problems.is_empty()))
            .collect();
        // What is refused has no settings, though the rest of it may be good.
        let (settings, chosen) = if problems.is_empty() { (settings, chosen) } else { (None, Vec::new()) };
        let (variables, others) = outcome::judge(names, &environment, &found, &flags);
        let directory =
            words.iter().find_map(|word| word.to_str()?.strip_prefix("--config=").map(PathBuf::from));
        let ignores_hidden = environment.get("RUNTIME_IGNOREDOTFILES").map(boolean) == Some(Ok(true));
        let notices = found.notices;
        let reads_hidden_files = !ignores_hidden;
        Self { settings, chosen, notices, problems, variables, others, directory, reads_hidden_files }
    }
}

/// Of words that state one flag, the last one, which counts; all where all do.
fn last_of_each(words: Vec<OsString>) -> Vec<OsString> {
    let mut known = BTreeSet::new();
    let counts = |word: &OsString| known.insert(flag_of(word)) || cli::collects(&flag_of(word));
    let mut kept: Vec<OsString> = words.into_iter().rev().filter(counts).collect();
    kept.reverse();
    kept
}

/// Those without which other settings would come about.
fn needed(mut words: Vec<OsString>, settings: &Settings) -> Vec<OsString> {
    let mut at = 0;
    while at < words.len() {
        let word = words.remove(at);
        if !cli::served(&words).is_ok_and(|others| *others == *settings) {
            words.insert(at, word);
            at = at.saturating_add(1);
        }
    }
    words
}

fn flag_of(word: &OsString) -> String {
    word.to_string_lossy().split('=').next().unwrap_or_default().to_owned()
}

/// The setting that a word states.
fn chosen_by(word: &OsString, found: &Found) -> Option<Chosen> {
    let (flag, value) = word.to_str()?.split_once('=')?;
    let name = flag.trim_start_matches('-');
    let said = found.said.iter().rev().filter(|(known, _)| known == name);
    let said = said.take(if cli::collects(flag) { usize::MAX } else { 1 });
    let mut from: Vec<String> =
        said.flat_map(|(_, names)| names.split(" with ").map(ToOwned::to_owned)).collect();
    from.sort_unstable();
    let (variable, shown) = (environment::variable(name), shown(name, value));
    Some(Chosen { flag: flag.to_owned(), variable, shown, from, value: value.into() })
}

/// Headers with their values masked.
fn without_values(headers: &str) -> String {
    let names = headers.split(',').map(|pair| pair.split('=').next().unwrap_or_default());
    names.map(|name| format!("{name}={MASK}")).collect::<Vec<_>>().join(",")
}

/// A value without its secrets. What has several lines is most likely a key where the path of its file belongs.
fn shown(flag: &str, value: &str) -> String {
    let masked = match flag {
        "store" => value.parse::<RedisUrl>().ok().map(|servers| servers.to_string()),
        flag if flag.ends_with("headers") && value.contains('=') => Some(without_values(value)),
        _ if value.contains(char::is_control) => Some(MASK.to_owned()),
        _ => None,
    };
    masked.filter(|masked| masked.contains(MASK)).unwrap_or_else(|| value.to_owned())
}
