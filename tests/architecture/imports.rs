//! The order of imports: no crate imports a later one, and no files of a folder import each other in a circle.
//!
//! `cargo test --test integration architecture::imports -- --nocapture` prints every circle with its imports.

use super::{crate_sources, files_below, is_test_file, without_tests};
use crate::support::prelude::*;
use crate::support::rust_tokens::{Kind, Token, tokens};

/// Files and folders that import each other until the circle is cut: crate, folder, and their names. The list may only
/// shrink.
const ALLOWED_CIRCLES: &[(&str, &str, &str)] =
    // A value may be a mapping, whose keys have values.
    &[("rules", "config", "raw reader vocabulary")];

/// Maximum number of names through which an item is re-exported.
const MAX_ALIASES: usize = 8;

/// Names of a module or of an item in it, from the root of its crate.
type Names = Vec<String>;

/// Imports of the files and folders of one folder by each other, with an example of each.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

/// The module of a file below `src`: `a/b.rs` and `a/b/mod.rs` are both a::b; `lib.rs` and `main.rs` are the root.
fn module_of(file: &Path) -> Names {
    let parts = file.with_extension("");
    let mut parts: Names = parts.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    parts.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
    parts
}

/// Modules of a crate by their names.
#[derive(Default)]
struct Modules {
    tokens: BTreeMap<Names, Vec<Token>>,
    /// Paths of the items that `use` declares in a module, by the module with their names there.
    aliases: BTreeMap<Names, Names>,
}

impl Modules {
    fn of_crate(root: &Path) -> Self {
        let mut modules = Self::default();
        for file in files_below(root) {
            let place = file.strip_prefix(root).expect("below src");
            let module = module_of(place);
            if place.extension().is_none_or(|extension| extension != "rs") || is_test_file(place) {
                continue;
            }
            let mut tokens = tokens(without_tests(&fs::read_to_string(&file).expect("a text")));
            tokens.retain(|token| !matches!(token.kind, Kind::Comment(_)));
            modules.tokens.insert(module, tokens);
        }
        let declared: Vec<_> = modules
            .tokens
            .iter()
            .flat_map(|(module, tokens)| {
                let used = modules
                    .paths(module, tokens)
                    .into_iter()
                    .filter_map(|path| Some((path.alias?, path.names)));
                used.map(|(alias, names)| ([&**module, &[alias]].concat(), names))
            })
            .collect();
        modules.aliases = declared.into_iter().filter(|(alias, names)| alias != names).collect();
        modules
    }

    /// All paths in a module that begin with `crate`, `self`, `super` or one of its own modules.
    fn paths(&self, module: &Names, tokens: &[Token]) -> Vec<UsedPath> {
        let mut paths = Vec::new();
        let (mut at, mut is_use) = (0, false);
        while let Some(token) = tokens.get(at) {
            let is_first = !(at > 1 && is_colons(tokens, at - 2)) && is_colons(tokens, at + 1);
            let base = match &token.kind {
                Kind::Word(word) if is_first => match word.as_str() {
                    "crate" => Some(Names::new()),
                    "self" => Some(module.clone()),
                    "super" => {
                        let mut base = module[..module.len().saturating_sub(1)].to_vec();
                        while is_colons(tokens, at + 1)
                            && tokens.get(at + 3).is_some_and(|token| token.kind.is("super"))
                        {
                            base.pop();
                            at += 3;
                        }
                        Some(base)
                    }
                    child => {
                        let child = [&**module, &[child.to_owned()]].concat();
                        self.tokens.contains_key(&child).then_some(child)
                    }
                },
                Kind::Word(word) => {
                    is_use |= word == "use";
                    None
                }
                Kind::Sign(';') => {
                    is_use = false;
                    None
                }
                _ => None,
            };
            at += 1;
            if let Some(base) = base {
                let begin = paths.len();
                at = expand(tokens, at + 2, base, &mut paths);
                if !is_use {
                    paths[begin..].iter_mut().for_each(|path| path.alias = None);
                }
            }
        }
        paths
    }

    /// The module that defines what a path names.
    fn definer(&self, path: &Names) -> Option<Names> {
        let mut path = path.clone();
        for _ in 0..MAX_ALIASES {
            let known = (0..=path.len()).rev().find(|end| self.tokens.contains_key(&path[..*end]))?;
            match path.get(..=known).and_then(|name| self.aliases.get(name)) {
                Some(alias) => path = [alias, &path[known + 1..]].concat(),
                None => return Some(path[..known].to_vec()),
            }
        }
        None
    }

    /// The imports between neighbours, by their folder. What a file and the folder of it import of each other does not count:
    /// they are one subject.
    fn imports(&self) -> BTreeMap<Names, Imports> {
        let mut folders = BTreeMap::<Names, Imports>::new();
        for (module, tokens) in &self.tokens {
            for used in self.paths(module, tokens) {
                let Some(imported) = self.definer(&used.names) else { continue };
                let shared = module.iter().zip(&imported).take_while(|(one, other)| one == other).count();
                if let (Some(from), Some(to)) = (module.get(shared), imported.get(shared)) {
                    let imports = folders.entry(module[..shared].to_vec()).or_default();
                    let example = format!("{} uses {}", module.join("::"), used.names.join("::"));
                    imports.entry(from.clone()).or_default().insert(to.clone(), example);
                    imports.entry(to.clone()).or_default();
                }
            }
        }
        folders
    }
}

/// A path in a module, and the name under which `use` declares it.
#[derive(Debug, PartialEq, Eq)]
struct UsedPath {
    names: Names,
    alias: Option<String>,
}

fn is_colons(tokens: &[Token], at: usize) -> bool {
    let is_colon = |at: usize| tokens.get(at).is_some_and(|token| token.kind == Kind::Sign(':'));
    is_colon(at) && is_colon(at + 1)
}

/// Adds all paths that begin with `names` and go on at a token, several in braces. Returns the position behind them.
fn expand(tokens: &[Token], mut at: usize, mut names: Names, paths: &mut Vec<UsedPath>) -> usize {
    while let Some(Token { kind: Kind::Word(word), .. }) = tokens.get(at) {
        if word != "self" {
            names.push(word.clone());
        }
        at += 1;
        if !is_colons(tokens, at) {
            let renamed = tokens.get(at).is_some_and(|token| token.kind.is("as"));
            let alias = match tokens.get(at + 1) {
                Some(Token { kind: Kind::Word(alias), .. }) if renamed => Some(alias.clone()),
                _ => names.last().cloned(),
            };
            paths.push(UsedPath { names, alias });
            return at + if renamed { 2 } else { 0 };
        }
        at += 2;
    }
    match tokens.get(at).map(|token| &token.kind) {
        Some(Kind::Sign('{')) => {
            while tokens.get(at).is_some_and(|token| token.kind != Kind::Sign('}')) {
                at = expand(tokens, at + 1, names.clone(), paths);
            }
            at + 1
        }
        // A comma before the end of a list.
        Some(Kind::Sign('}')) => at,
        // All names, or the parameters of a generic item.
        _ => {
            paths.push(UsedPath { names, alias: None });
            at + 1
        }
    }
}

/// All neighbours that one imports, directly or not.
fn reachable(imports: &Imports, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(module) = open.pop() {
        let next = imports.get(&module).into_iter().flat_map(BTreeMap::keys);
        open.extend(next.filter(|next| found.insert((*next).clone())).cloned());
    }
    found
}

/// The sets of neighbours that import each other in a circle.
fn circles(imports: &Imports) -> BTreeSet<BTreeSet<String>> {
    let reach: BTreeMap<_, _> = imports.keys().map(|module| (module, reachable(imports, module))).collect();
    let in_circle = reach.iter().filter(|(module, reached)| reached.contains(**module));
    let others = |module, reached: &BTreeSet<String>| {
        reached.iter().filter(|other| reach[other].contains(module)).cloned().collect()
    };
    in_circle.map(|(module, reached)| others(*module, reached)).collect()
}

#[test]
fn files_of_a_folder_do_not_import_each_other_in_a_circle() {
    let mut found = Vec::new();
    for (name, root) in crate_sources() {
        for (folder, imports) in Modules::of_crate(&root).imports() {
            let folder = folder.join("::");
            for circle in circles(&imports) {
                println!("{name} {folder}: {circle:?}");
                for (from, to) in imports.iter().filter(|(module, _)| circle.contains(*module)) {
                    for (to, example) in to.iter().filter(|(module, _)| circle.contains(*module)) {
                        println!("  {from} -> {to}: {example}");
                    }
                }
                let modules: Vec<_> = circle.iter().map(String::as_str).collect();
                found.push((name.clone(), folder.clone(), modules.join(" ")));
            }
        }
    }
    let found: Vec<_> =
        found.iter().map(|(name, folder, modules)| (&**name, &**folder, &**modules)).collect();
    assert_eq!(found, ALLOWED_CIRCLES, "files that import each other, and those that may");
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
fn items_are_found_where_they_are_defined() {
    let source = |text: &str| tokens(text);
    let names =
        |path: &str| path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect::<Names>();
    let modules = Modules {
        tokens: ["", "a", "a::b", "a::c", "d"].map(|module| (names(module), source(""))).into(),
        aliases: [("D", "d::D"), ("a::B", "a::b::B"), ("a::E", "D")]
            .map(|(alias, path)| (names(alias), names(path)))
            .into(),
    };
    let text =
        "use crate::{a::B, d::{E as F, self}, *};\nfn g() { super::h(); super::super::i(); c::j(); self.k }";
    let found: Vec<_> = modules
        .paths(&names("a"), &source(text))
        .into_iter()
        .map(|path| (path.names.join("::"), path.alias))
        .collect();
    let alias = |alias: &str| Some(alias.to_owned());
    let expected = [
        ("a::B", alias("B")),
        ("d::E", alias("F")),
        ("d", alias("d")),
        ("", None),
        ("h", None),
        ("i", None),
        ("a::c::j", None),
    ];
    assert_eq!(found, expected.map(|(path, alias)| (path.to_owned(), alias)));
    for (path, module) in [("a::B", "a::b"), ("a::E", "d"), ("a::F", "a"), ("D::new", "d"), ("F", "")] {
        assert_eq!(modules.definer(&names(path)), Some(names(module)), "{path}");
    }
}
