//! The generated pages of `docs/reference` are up to date.

use crate::reference_pages::{PAGES, page};
use crate::support::prelude::*;

#[test]
fn pages_are_up_to_date() {
    for name in PAGES {
        let path = format!("docs/reference/{name}.md");
        let committed = fs::read_to_string(project(&path)).unwrap_or_default();
        assert!(
            committed == page(name),
            "{path} is outdated; run `cargo run --example docs {name} > {path}`"
        );
    }
}

#[test]
fn the_schema_of_rules_is_up_to_date() {
    let generated = output_of(command().arg("schema"));
    let path = "docs/reference/rules.schema.json";
    let committed = fs::read_to_string(project(path)).unwrap_or_default();
    assert!(committed == generated, "{path} is outdated; run `tollgate schema > {path}`");
}
