//! Structure of the sources: which modules import which, and how long crates, files and functions are.

use crate::support::{
    prelude::*,
    rust_tokens::{Kind, Token, tokens},
};

/// Modules of a crate that may import each other in a cycle until the imports are cut; the list may only shrink.
const ALLOWED_CYCLES: &[(&str, &[&str])] = &[];

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

/// The module path of a file below `src`: `a/b.rs` and `a/b/mod.rs` are both a::b; `lib.rs` and `main.rs` are the root.
fn module_path(file: &Path) -> Vec<String> {
    let mut parts: Vec<_> = file
        .with_extension("")
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// The first names after a path's prefix, which ends before `at`: one, or several in braces.
fn first_names(tokens: &[Token], at: usize) -> Vec<String> {
    let mut names = Vec::new();
    let mut depth = 0_usize;
    let mut is_first = true;
    for token in &tokens[at..] {
        match &token.kind {
            Kind::Word(word) if is_first => {
                names.push(word.clone());
                is_first = false;
            }
            Kind::Sign('{') => depth += 1,
            Kind::Sign('}') => depth = depth.saturating_sub(1),
            Kind::Sign(',') if depth == 1 => is_first = true,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// Names that a module at this depth takes from the root of its crate by `crate::` or `super::`.
fn names_from_root(tokens: &[Token], depth: usize) -> Vec<String> {
    let is_colons = |at: usize| {
        let sign = |at: usize| tokens.get(at).is_some_and(|token| token.kind == Kind::Sign(':'));
        sign(at) && sign(at + 1)
    };
    let mut names = Vec::new();
    for at in 0..tokens.len() {
        if tokens[at].kind.is("crate") && is_colons(at + 1) {
            names.extend(first_names(tokens, at + 3));
        } else if tokens[at].kind.is("super") && !(at > 1 && is_colons(at - 2)) {
            let mut end = at;
            let mut steps = 1;
            while is_colons(end + 1) && tokens.get(end + 3).is_some_and(|token| token.kind.is("super")) {
                end += 3;
                steps += 1;
            }
            if steps == depth && is_colons(end + 1) {
                names.extend(first_names(tokens, end + 3));
            }
        }
    }
    names
}

/// Which of a crate's top modules import which.
fn imports(root: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut graph = BTreeMap::<String, BTreeSet<String>>::new();
    let mut named = Vec::new();
    for file in files_below(root) {
        let place = file.strip_prefix(root).expect("below src");
        if place.extension().is_none_or(|extension| extension != "rs") || is_test_file(place) {
            continue;
        }
        let path = module_path(place);
        // Built for fuzz targets only, which reach into every module.
        if path.iter().any(|part| part == "fuzzing") {
            continue;
        }
        let Some(module) = path.first() else { continue };
        let text = fs::read_to_string(&file).expect("a text");
        let names = names_from_root(&tokens(without_tests(&text)), path.len());
        graph.entry(module.clone()).or_default();
        named.push((module.clone(), names));
    }
    let modules: BTreeSet<String> = graph.keys().cloned().collect();
    for (module, names) in named {
        let others = names.into_iter().filter(|name| *name != module && modules.contains(name));
        graph.entry(module.clone()).or_default().extend(others);
    }
    graph
}

/// All modules that a module imports, directly or not.
fn reachable(graph: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(module) = open.pop() {
        for next in graph.get(&module).into_iter().flatten() {
            if found.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    found
}

/// The sets of modules that import each other in a cycle.
fn cycles(graph: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<String>> =
        graph.keys().map(|module| (module, reachable(graph, module))).collect();
    let is_mutual = |one: &String, other: &String| reach[one].contains(other) && reach[other].contains(one);
    let in_cycle = graph.keys().filter(|module| reach[module].contains(*module));
    in_cycle.map(|module| graph.keys().filter(|other| is_mutual(module, other)).cloned().collect()).collect()
}

#[test]
fn imports_between_modules_have_no_cycles() {
    let mut unexpected = Vec::new();
    for (name, root) in crate_sources() {
        let graph = imports(&root);
        println!("{name}");
        for (module, imported) in &graph {
            println!("  {module} -> {}", imported.iter().map(String::as_str).collect::<Vec<_>>().join(" "));
        }
        for cycle in cycles(&graph) {
            let is_allowed = ALLOWED_CYCLES.iter().any(|(allowed, modules)| {
                *allowed == name && cycle.iter().all(|module| modules.contains(&module.as_str()))
            });
            println!("  cycle{}: {cycle:?}", if is_allowed { ", allowed" } else { "" });
            if !is_allowed {
                unexpected.push(format!("{name}: {cycle:?}"));
            }
        }
    }
    assert!(unexpected.is_empty(), "modules import each other: {unexpected:#?}");
}

#[test]
fn crates_import_only_those_of_earlier_rows() {
    let text = fs::read_to_string(project("ARCHITECTURE.md")).expect("a text");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `crates/")?.split_once('`'));
    let mut known = BTreeSet::new();
    for (name, _) in rows {
        let manifest = fs::read_to_string(project(&format!("crates/{name}/Cargo.toml"))).expect("a manifest");
        // Tests may use any crate.
        let (_, dependencies) = manifest.split_once("[dependencies]").expect("dependencies");
        let dependencies = dependencies.split("[dev-dependencies]").next().unwrap_or_default();
        let imported = dependencies.lines().filter_map(|line| line.strip_prefix("tollgate-"));
        let imported = imported.filter_map(|line| line.split(['.', ' ']).next());
        let upward: Vec<&str> = imported.filter(|crate_name| !known.contains(crate_name)).collect();
        assert!(upward.is_empty(), "crates/{name} imports {upward:?}, which are not in earlier rows");
        known.insert(name);
    }
    assert!(known.len() > 10, "{known:?}");
}

#[test]
fn paths_from_the_crate_root_are_imports() {
    let source =
        "use crate::{a::B, c::{d, e}, f};\nfn g() { crate::h::i(); super::super::j::k(); super::l::m(); }";
    assert_eq!(names_from_root(&tokens(source), 2), ["a", "c", "f", "h", "j"]);
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
