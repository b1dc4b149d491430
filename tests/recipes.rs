//! The recipes of CONTRIBUTING.md name every file that an existing example of their kind touches, and no more than
//! promised.

use crate::architecture::{crate_sources, files_below, is_test_file};
use crate::support::prelude::*;

/// A recipe, an example of what it adds, and the maximum number of files to touch, tests and documentation apart.
struct Recipe {
    heading: &'static str,
    /// Words that name the example in code.
    example: &'static [&'static str],
    max_rust: usize,
    max_lua: usize,
}

const RECIPES: [Recipe; 4] = [
    Recipe {
        heading: "An algorithm",
        example: &["SlidingWindow", "sliding_window"],
        // Four of them for loans of regions, and for a length that may change.
        max_rust: 8,
        max_lua: 1,
    },
    Recipe { heading: "A rate-limit key", example: &["share_threshold"], max_rust: 4, max_lua: 0 },
    Recipe { heading: "A metric", example: &["REPLICAS"], max_rust: 2, max_lua: 0 },
    Recipe { heading: "A setting", example: &["drain_delay"], max_rust: 2, max_lua: 0 },
];

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Whether code names `word` as a whole.
fn names(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + word.len()..]);
        !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

/// Files below a directory whose code names one of the words, relative to the project.
fn naming(directory: &Path, extension: &str, words: &[&str]) -> Vec<String> {
    let files = files_below(directory).into_iter().filter(|file| {
        let place = file.strip_prefix(directory).expect("below it");
        let is_fuzzing =
            place.components().any(|part| part.as_os_str().to_string_lossy().starts_with("fuzz"));
        file.extension().is_some_and(|found| found == extension) && !is_test_file(place) && !is_fuzzing
    });
    let is_naming = |file: &PathBuf| {
        let text = fs::read_to_string(file).expect("a text");
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let is_comment =
            |line: &&str| line.trim_start().starts_with("//") || line.trim_start().starts_with("--");
        code.lines().filter(|line| !is_comment(line)).any(|line| words.iter().any(|word| names(line, word)))
    };
    let root = project("");
    let relative =
        |file: PathBuf| file.strip_prefix(&root).expect("in the project").to_string_lossy().into_owned();
    files.filter(is_naming).map(relative).collect()
}

#[test]
fn recipes_name_the_files_that_an_example_touches() {
    let contributing = fs::read_to_string(project("CONTRIBUTING.md")).expect("a text");
    for Recipe { heading, example, max_rust, max_lua } in RECIPES {
        let section = contributing.split(&format!("\n### {heading}\n")).nth(1).expect(heading);
        let section = section.split("\n##").next().unwrap_or_default();
        let rust: Vec<String> =
            crate_sources().iter().flat_map(|(_, source)| naming(source, "rs", example)).collect();
        let lua = naming(&project("lua"), "lua", example);
        assert!(!rust.is_empty() && rust.len() <= max_rust, "{heading}: {} files: {rust:#?}", rust.len());
        assert!(lua.len() <= max_lua, "{heading}: {lua:#?}");
        for file in rust.iter().chain(&lua) {
            let (directory, name) = file.rsplit_once('/').expect("a directory");
            let is_own = example.iter().any(|word| name.starts_with(&format!("{word}.")));
            let is_named = section.contains(file.as_str())
                || section.contains(&format!("{directory}/"))
                    && (is_own || section.contains(&format!("`{name}`")));
            assert!(is_named, "CONTRIBUTING.md, {heading}: names no {file}");
        }
    }
}
