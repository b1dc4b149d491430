//! STYLE.md, as far as a program can check it: each count may only fall.
//!
//! `PROSE=all cargo test --test integration -- --nocapture prose::` lists every place that counts.

mod names;
mod texts;

use self::texts::Text;
use crate::architecture::{crate_sources, files_below};
use crate::support::prelude::*;
use crate::support::rust_tokens::{Kind, Token, tokens};

/// The parts of the repository that are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// `src`, `crates/*/src` and `tools/*/src`, with their unit tests.
    Sources,
    Lua,
    Tests,
    /// `docs` and the Markdown files beside it.
    Docs,
    /// `proto`, `benches`, `deploy`, `config`, `examples` and `.github`.
    Rest,
}

/// The checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Check {
    /// Words and phrases that STYLE.md refuses.
    Word,
    /// Docs that begin with a word that STYLE.md refuses.
    Opening,
    /// Constants with a name that says neither of what nor in which unit.
    Constant,
    /// Type names with three or more definitions in a crate.
    Type,
    /// Log messages that interpolate, or are longer than eight words.
    Log,
    /// Types with inherent impls in more than two files.
    Impl,
    /// Modules as `name.rs` beside a folder `name`.
    Layout,
}

/// The present counts; a change that lowers one lowers its number here. Checks that are not listed have 0.
const CEILINGS: &[(Part, Check, usize)] = &[];

/// A place that counts: the part, the check, and where and what.
type Finding = (Part, Check, String);

/// A file of a part.
struct Source {
    part: Part,
    /// The crate, for Rust.
    unit: String,
    /// The path within the repository.
    path: PathBuf,
    text: String,
    /// Empty but for Rust.
    tokens: Vec<Token>,
}

impl Source {
    fn has_extension(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|found| found == extension)
    }
}

fn read(part: Part, unit: &str, path: &Path) -> Option<Source> {
    let known = ["rs", "lua", "py", "sh", "md", "js", "proto", "yaml", "yml", "awk"];
    let is_rust = path.extension()? == "rs";
    // These name the words that they refuse.
    let quotes_words = path.ends_with("STYLE.md") || path.ends_with("tests/prose/mod.rs");
    if quotes_words
        || !known.iter().any(|extension| path.extension().is_some_and(|found| found == *extension))
    {
        return None;
    }
    let text = fs::read_to_string(path).expect("a text");
    let tokens = if is_rust { tokens(&text) } else { Vec::new() };
    let path = path.strip_prefix(project("")).expect("of the project").to_owned();
    Some(Source { part, unit: unit.to_owned(), path, text, tokens })
}

/// All files that are checked.
fn sources() -> Vec<Source> {
    let mut files = Vec::new();
    for (name, root) in crate_sources() {
        files.extend(files_below(&root).into_iter().map(|path| (Part::Sources, name.clone(), path)));
    }
    let folders = [(Part::Lua, "lua"), (Part::Tests, "tests"), (Part::Docs, "docs")].into_iter();
    let rest =
        ["proto", "benches", "deploy", "config", "examples", ".github"].map(|folder| (Part::Rest, folder));
    for (part, folder) in folders.chain(rest) {
        if project(folder).is_dir() {
            files.extend(
                files_below(&project(folder)).into_iter().map(|path| (part, folder.to_owned(), path)),
            );
        }
    }
    for entry in fs::read_dir(project("")).expect("a directory") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|extension| extension == "md") {
            files.push((Part::Docs, "docs".to_owned(), path));
        }
    }
    files.into_iter().filter_map(|(part, unit, path)| read(part, &unit, &path)).collect()
}

/// Words that are refused wherever they stand.
const WORDS: [&str; 16] = [
    "told",
    "tell",
    "tells",
    "telling",
    "hear",
    "hears",
    "heard",
    "nobody",
    "somebody",
    "whoever",
    "gone",
    "elsewhere",
    "ask",
    "asks",
    "asked",
    "asking",
];

/// Names of Redis that contain refused words.
const NAMES_OF_REDIS: [&str; 3] = ["ASKING", "ASK", "+asking"];

/// Phrases that are refused.
const PHRASES: [&str; 9] = [
    "for want of",
    "so many",
    "so long as",
    "at the most",
    "is none",
    "makes no sense",
    "goes by",
    "given up",
    "those who",
];

/// First words of docs that are refused.
const OPENINGS: [&str; 10] =
    ["What", "How", "It", "That", "Those", "They", "None", "So", "Nobody", "The same"];

fn lowercase_words(text: &str) -> Vec<String> {
    let words = text.split(|character: char| !character.is_alphabetic() && character != '\'');
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// The refused words and phrases of a text.
fn refused_words(text: &str) -> Vec<&'static str> {
    let text = NAMES_OF_REDIS.into_iter().fold(text.to_owned(), |text, name| text.replace(name, " "));
    let words = lowercase_words(&text);
    let mut found: Vec<&str> = WORDS
        .into_iter()
        .flat_map(|refused| words.iter().filter(move |word| *word == refused).map(move |_| refused))
        .collect();
    let joined = format!(" {} ", words.join(" "));
    found.extend(PHRASES.into_iter().filter(|phrase| joined.contains(&format!(" {phrase} "))));
    found
}

fn refused_opening(text: &str) -> Option<&'static str> {
    let rest = |opening: &str| text.strip_prefix(opening).map(|rest| rest.chars().next());
    OPENINGS
        .into_iter()
        .find(|opening| rest(opening).is_some_and(|next| next.is_none_or(|next| !next.is_alphanumeric())))
}

fn findings_in_texts(source: &Source, found: &mut Vec<Finding>) -> usize {
    let mut words = 0;
    for Text { line, text, is_doc } in texts::of(source) {
        words += lowercase_words(&text).len();
        let place = |what: &str| format!("{}:{line}: {what}: {}", source.path.display(), text.trim());
        found.extend(refused_words(&text).into_iter().map(|word| (source.part, Check::Word, place(word))));
        let opening = refused_opening(&text).filter(|_| is_doc);
        found.extend(opening.map(|opening| (source.part, Check::Opening, place(opening))));
    }
    words
}

#[test]
fn counts_of_style_violations_do_not_rise() {
    let sources = sources();
    let mut found = Vec::new();
    let mut words = BTreeMap::<Part, usize>::new();
    for source in &sources {
        *words.entry(source.part).or_default() += findings_in_texts(source, &mut found);
        found.extend(names::constants(source));
        found.extend(names::logs(source));
        found.extend(names::layout(source));
    }
    found.extend(names::repeated_types(&sources));
    found.extend(names::scattered_impls(&sources));

    let mut places = BTreeMap::<(Part, Check), Vec<String>>::new();
    for (part, check, place) in found {
        places.entry((part, check)).or_default().push(place);
    }
    for ((part, check), places) in &places {
        let words = words.get(part).copied().unwrap_or_default().max(1);
        println!("{part:?} {check:?}: {} ({} per 10,000 words)", places.len(), places.len() * 10_000 / words);
        if env::var("PROSE").is_ok_and(|wanted| wanted == "all") {
            places.iter().for_each(|place| println!("  {place}"));
        }
    }
    for (key, places) in &places {
        let ceiling =
            CEILINGS.iter().find(|(part, check, _)| (*part, *check) == *key).map_or(0, |known| known.2);
        let some: Vec<_> = places.iter().take(20).collect();
        assert!(
            places.len() <= ceiling,
            "{key:?}: {}, more than {ceiling}; among them: {some:#?}",
            places.len()
        );
    }
}

#[test]
fn refused_words_and_openings_are_found() {
    assert_eq!(
        refused_words("Told nobody, for want\nof a name; `untold` is none."),
        ["told", "nobody", "for want of", "is none"]
    );
    assert_eq!(refused_words("A plain text."), [""; 0]);
    assert_eq!(refused_words("Ask for `MOVED`, `ASK` and +asking."), ["ask"]);
    assert_eq!(refused_opening("What is there"), Some("What"));
    assert_eq!(refused_opening("The same as above"), Some("The same"));
    assert_eq!(refused_opening("Items of a list"), None);
}
