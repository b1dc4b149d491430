//! The examples that come with the project.

use super::*;

fn compiles(directory: &str) -> Loaded {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(directory);
    let loaded = load(&directory, &Options { strict: true, ..Options::default() });
    loaded.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_default_configuration_compiles_without_a_warning() {
    let loaded = compiles("config/default");
    let edge = loaded.rules.domain("edge").unwrap();
    let demo = [Entry { key: "generic_key", value: "demo" }];
    assert!(edge.root.rule(&demo).is_some());
}

#[test]
fn every_example_compiles_without_a_warning_beside_the_others() {
    assert!(compiles("config/examples").rules.domains().count() >= 20);
}

#[test]
fn the_rules_of_the_benchmarks_compile_without_a_warning() {
    assert_eq!(compiles("benches/rules").rules.domains().count(), 3);
}
