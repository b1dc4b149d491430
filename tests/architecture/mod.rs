//! Structure of the sources: which modules import which, and how long crates, files and functions are.

mod imports;

use crate::support::prelude::*;
use crate::support::rust_tokens::{Kind, Token, tokens};

/// The maximum number of lines of a file, with the tests in it.
const MAX_FILE_LINES: usize = 400;

/// Lines by which a crate may be below its ceiling, so that the ceiling follows what is removed.
const CEILING_ROOM: usize = 300;

/// The maximum number of lines of a function that is no test, from `fn` to its last brace.
const MAX_FUNCTION_LINES: usize = 50;

/// All files below a directory.
pub(crate) fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("readable").path());
    let mut files: Vec<_> =
        entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

/// The `src` directories of the root crate and of those in `crates/` and `tools/`, each with the crate's name.
pub(crate) fn crate_sources() -> Vec<(String, PathBuf)> {
    let mut sources = vec![("tollgate".to_owned(), project("src"))];
    let folders = ["crates", "tools"].map(|folder| fs::read_dir(project(folder)).expect("a directory"));
    for entry in folders.into_iter().flatten() {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.join("src").is_dir() {
            sources.push((name, path.join("src")));
        }
    }
    sources.sort();
    sources
}

/// Whether a file has only tests.
pub(crate) fn is_test_file(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests")
}

/// A source without the module of tests at its end.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

/// Ceilings of code lines by the folders of crates, from the table of the crates in ARCHITECTURE.md.
fn ceilings() -> BTreeMap<String, usize> {
    let text = fs::read_to_string(project("ARCHITECTURE.md")).expect("a text");
    let row = |line: &str| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let ["", folder, ceiling, _content, ""] = cells[..] else { return None };
        Some((folder.trim_matches(['`', '/']).to_owned(), ceiling.replace(',', "").parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

/// The lines of Rust that have code, without tests.
fn code_lines(root: &Path) -> usize {
    let is_code = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "rs");
    let files = files_below(root).into_iter().filter(is_code).filter(|file| !is_test_file(file));
    let lines = |file: PathBuf| {
        let text = fs::read_to_string(&file).expect("a text");
        let tokens = tokens(without_tests(&text));
        let code = tokens.iter().filter(|token| !matches!(token.kind, Kind::Comment(_)));
        code.map(|token| token.line).collect::<BTreeSet<_>>().len()
    };
    files.map(lines).sum()
}

#[test]
fn crates_have_at_most_the_lines_of_their_ceilings() {
    let mut ceilings = ceilings();
    for (_, root) in crate_sources() {
        let folder = root.strip_prefix(project("")).expect("below the project");
        let folder = folder.parent().filter(|parent| parent.parent().is_some()).unwrap_or(folder);
        let folder = folder.display().to_string();
        let ceiling = ceilings.remove(&folder).unwrap_or_else(|| panic!("no ceiling of {folder}"));
        let lines = code_lines(&root);
        println!("{folder}: {lines} of {ceiling}");
        assert!(lines <= ceiling, "{folder} has {lines} code lines: remove some, or raise its ceiling");
        let is_close = lines + CEILING_ROOM >= ceiling;
        assert!(is_close, "{folder} has only {lines} code lines: lower its ceiling of {ceiling}");
    }
    assert!(ceilings.is_empty(), "no such crates: {ceilings:?}");
}

#[test]
fn files_have_at_most_400_lines() {
    // The API description is one document, whatever its length.
    let is_code = |file: &PathBuf| file.extension().is_none_or(|extension| extension != "json");
    for (_, root) in crate_sources() {
        for file in files_below(&root).into_iter().filter(is_code).filter(|file| !is_test_file(file)) {
            let lines = fs::read_to_string(&file).expect("a text").lines().count();
            assert!(lines <= MAX_FILE_LINES, "{} has {lines} lines", file.display());
        }
    }
}

#[test]
fn documentation_of_crates_without_its_tests_has_no_code() {
    let fixtures = ("fixtures".to_owned(), project("tests/fixtures/src"));
    for (name, root) in crate_sources().into_iter().chain([fixtures]) {
        let manifest = root.with_file_name("Cargo.toml");
        if !fs::read_to_string(manifest).expect("a text").contains("doctest = false") {
            continue;
        }
        let is_code = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "rs");
        for file in files_below(&root).into_iter().filter(is_code) {
            let text = fs::read_to_string(&file).expect("a text");
            assert!(!text.contains("#![doc = include_str!"), "the documentation of {name} is not tested");
            let mut is_open = false;
            for line in text.lines().map(str::trim_start) {
                let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
                let Some(fence) = comment.and_then(|comment| comment.trim_start().strip_prefix("```")) else {
                    // A block ends with its comment.
                    is_open &= comment.is_some();
                    continue;
                };
                assert!(is_open || fence == "text", "{}: expected ```text, not ```{fence}", file.display());
                is_open = !is_open;
            }
        }
    }
}

/// The functions with a body: name, line of `fn`, and number of lines.
fn functions(tokens: &[Token]) -> Vec<(&str, usize, usize)> {
    let mut functions = Vec::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        let [keyword, Token { kind: Kind::Word(name), .. }] = pair else { continue };
        if !keyword.kind.is("fn") {
            continue;
        }
        let mut depth = 0_usize;
        for token in &tokens[at..] {
            match token.kind {
                Kind::Sign('(' | '[' | '{') => depth += 1,
                Kind::Sign(')' | ']') => depth -= 1,
                Kind::Sign('}') if depth == 1 => {
                    functions.push((&**name, keyword.line, token.line - keyword.line + 1));
                    break;
                }
                Kind::Sign('}') => depth -= 1,
                // Declared in a trait.
                Kind::Sign(';') if depth == 0 => break,
                _ => {}
            }
        }
    }
    functions
}

#[test]
fn functions_have_at_most_50_lines() {
    let mut long = Vec::new();
    for (_, root) in crate_sources() {
        let is_code = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "rs");
        for file in files_below(&root).into_iter().filter(is_code).filter(|file| !is_test_file(file)) {
            let text = fs::read_to_string(&file).expect("a text");
            for (name, line, lines) in functions(&tokens(without_tests(&text))) {
                if lines > MAX_FUNCTION_LINES {
                    long.push(format!("{}:{line}: {name} has {lines} lines", file.display()));
                }
            }
        }
    }
    assert!(long.is_empty(), "functions are too long: {long:#?}");
}

#[test]
fn the_lines_of_a_function_are_counted_from_its_keyword_to_its_last_brace() {
    let source = "trait A {\n fn a(x: [u8; 2]);\n}\n/// `fn b() {`\npub fn c<T>(\n t: fn(T) -> [u8; 2],\n)\nwhere\n T: B,\n{\n                   let a = '{';\n fn d() { \"}\"; }\n}\n";
    assert_eq!(functions(&tokens(source)), [("c", 5, 9), ("d", 12, 1)]);
}
