//! What may be used where: some things stay in the files that are made for them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::support::tollgate::project;

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("readable").path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// Each thing, and the parts of `src/` that may name it.
const QUARANTINES: [(&str, &[&str]); 9] = [
    ("crate::proto", &["service", "grpc", "bootstrap", "http", "load/request.rs", "xds", "config/resource"]),
    ("proto::envoy", &["service", "grpc", "bootstrap", "http", "load/request.rs", "xds"]),
    ("prost_types", &["service", "http", "xds", "config/resource"]),
    ("saphyr_parser", &["config"]),
    ("use ::redis::", &["store/redis"]),
    ("counter!(", &["metrics"]),
    ("gauge!(", &["metrics"]),
    ("histogram!(", &["metrics"]),
    ("notify::", &["config"]),
];

#[test]
fn what_is_quarantined_stays_where_it_belongs() {
    let root = project("src");
    for file in sources(&root) {
        let text = fs::read_to_string(&file).expect("a text");
        let place = file.strip_prefix(&root).expect("below src");
        for (thing, allowed) in QUARANTINES {
            let may = allowed
                .iter()
                .any(|part| place.starts_with(part) || place.with_extension("").starts_with(part));
            assert!(may || !text.contains(thing), "{} names {thing}", place.display());
        }
    }
}

#[test]
fn files_hold_one_concept_and_so_stay_short() {
    // A description for programs is one document, however long.
    let is_code = |file: &PathBuf| file.extension().is_none_or(|extension| extension != "json");
    for file in sources(&project("src")).into_iter().filter(is_code) {
        let text = fs::read_to_string(&file).expect("a text");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let is_test = file.ends_with("tests.rs") || file.components().any(|part| part.as_os_str() == "tests");
        let lines = code.lines().count();
        assert!(is_test || lines <= 400, "{} has {lines} lines", file.display());
    }
}
