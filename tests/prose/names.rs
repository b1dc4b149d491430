//! Names of constants, types and files, and the messages of logs.

use super::*;
use crate::architecture::is_test_file;

/// Names of constants that lack a noun and a unit.
const BARE: [&str; 12] =
    ["PATIENCE", "MOST", "LONGEST", "EVERY", "WAY", "WAIT", "PAUSE", "QUIET", "CALM", "LOOK", "SOON", "LONG"];

/// The number of words that a log message may have.
const MAX_LOG_WORDS: usize = 8;

/// The number of files that may have inherent impls of one type.
const MAX_IMPL_FILES: usize = 2;

/// The number of definitions of a type's name at which it is one too many.
const REPEATED: usize = 3;

fn finding(source: &Source, check: Check, line: usize, what: &str) -> Finding {
    (source.part, check, format!("{}:{line}: {what}", source.path.display()))
}

/// Constants with bare names.
pub(super) fn constants(source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    for pair in source.tokens.windows(2) {
        let is_item = pair[0].kind.is("const") || pair[0].kind.is("static");
        if let Kind::Word(name) = &pair[1].kind
            && is_item
            && BARE.contains(&name.as_str())
        {
            found.push(finding(source, Check::Constant, pair[1].line, name));
        }
    }
    found
}

/// The index behind the parenthesis that closes the one at `open`.
fn behind_parentheses(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            Kind::Sign('(' | '[' | '{') => depth += 1,
            Kind::Sign(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// The message of a log call: the first literal that is an argument of its own.
fn log_message(arguments: &[Token]) -> Option<&str> {
    let mut depth = 0_usize;
    for pair in arguments.windows(2) {
        match pair[0].kind {
            Kind::Sign('(' | '[' | '{') => depth += 1,
            Kind::Sign(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        let begins = matches!(pair[0].kind, Kind::Sign('(' | ','));
        if let Kind::Text(text) = &pair[1].kind
            && begins
            && depth == 1
        {
            return Some(text);
        }
    }
    None
}

/// Messages of logs that interpolate or are long.
pub(super) fn logs(source: &Source) -> Vec<Finding> {
    let levels = ["trace", "debug", "info", "warn", "error"];
    let mut found = Vec::new();
    for (at, three) in source.tokens.windows(3).enumerate() {
        let is_call = levels.iter().any(|level| three[0].kind.is(level))
            && three[1].kind == Kind::Sign('!')
            && three[2].kind == Kind::Sign('(');
        if !is_call {
            continue;
        }
        let arguments = &source.tokens[at + 2..behind_parentheses(&source.tokens, at + 2)];
        let message = log_message(arguments).unwrap_or_default();
        if message.contains('{') || message.split_whitespace().count() > MAX_LOG_WORDS {
            found.push(finding(source, Check::Log, three[0].line, message));
        }
    }
    found
}

/// Modules in a file beside their folder.
pub(super) fn layout(source: &Source) -> Option<Finding> {
    if !source.has_extension("rs") {
        return None;
    }
    let entries = fs::read_dir(project("").join(source.path.with_extension(""))).ok()?;
    let mut paths = entries.map(|entry| entry.expect("readable").path());
    let has_modules = paths.any(|path| path.extension().is_some_and(|extension| extension == "rs"));
    has_modules.then(|| finding(source, Check::Layout, 1, "a folder has the same name"))
}

/// Names of types with several definitions in a crate; each name is one finding.
pub(super) fn repeated_types(sources: &[Source]) -> Vec<Finding> {
    let mut defined = BTreeMap::<(&str, &str), Vec<Finding>>::new();
    for source in sources {
        for pair in source.tokens.windows(2) {
            let is_type = ["struct", "enum", "trait", "union"].iter().any(|word| pair[0].kind.is(word));
            if let Kind::Word(name) = &pair[1].kind
                && is_type
            {
                let places = defined.entry((&source.unit, name)).or_default();
                places.push(finding(source, Check::Type, pair[1].line, name));
            }
        }
    }
    let repeated = defined.into_values().filter(|places| places.len() >= REPEATED);
    repeated
        .map(|places| {
            let (part, check, _) = places[0];
            (part, check, places.into_iter().map(|(_, _, place)| place).collect::<Vec<_>>().join(", "))
        })
        .collect()
}

/// The name of the type of the inherent impl whose keyword is at `at`, if it is one.
fn inherent_impl(tokens: &[Token], at: usize) -> Option<&str> {
    let is_item = match at.checked_sub(1).map(|before| &tokens[before].kind) {
        None | Some(Kind::Comment(_) | Kind::Sign('}' | '{' | ';' | ']')) => true,
        Some(other) => other.is("unsafe"),
    };
    if !is_item || !tokens[at].kind.is("impl") {
        return None;
    }
    let mut depth = 0_i32;
    let mut name = None;
    for (before, token) in tokens[at..].iter().zip(&tokens[at + 1..]) {
        match &token.kind {
            Kind::Sign('<') => depth += 1,
            Kind::Sign('>') if before.kind != Kind::Sign('-') => depth -= 1,
            Kind::Word(word) if depth == 0 && word == "for" => return None,
            Kind::Word(word) if depth == 0 && word == "where" => break,
            Kind::Word(word) if depth == 0 => name = Some(word.as_str()),
            Kind::Sign('{') => break,
            _ => {}
        }
    }
    name
}

/// Types with inherent impls in several files below one folder of `src`; each type is one finding.
pub(super) fn scattered_impls(sources: &[Source]) -> Vec<Finding> {
    let mut files = BTreeMap::<(String, &str, &str), (Vec<Finding>, BTreeSet<String>)>::new();
    for source in sources.iter().filter(|source| !is_test_file(&source.path)) {
        let below_src = source.path.iter().skip_while(|part| *part != "src").nth(1).unwrap_or_default();
        let folder = below_src.to_string_lossy().trim_end_matches(".rs").to_owned();
        for at in 0..source.tokens.len() {
            if let Some(name) = inherent_impl(&source.tokens, at) {
                let (places, paths) = files.entry((folder.clone(), &source.unit, name)).or_default();
                if paths.insert(source.path.display().to_string()) {
                    places.push(finding(source, Check::Impl, source.tokens[at].line, name));
                }
            }
        }
    }
    let scattered = files.into_values().filter(|(_, paths)| paths.len() > MAX_IMPL_FILES);
    scattered
        .map(|(places, _)| {
            let (part, check, _) = places[0];
            (part, check, places.into_iter().map(|(_, _, place)| place).collect::<Vec<_>>().join(", "))
        })
        .collect()
}
