//! The pages of `docs/reference` that `tollgate docs` generates are up to date.

use crate::support::prelude::*;

fn assert_is_generated(page: &str) {
    let generated = output_of(command().args(["docs", page]));
    let path = format!("docs/reference/{page}.md");
    let committed = fs::read_to_string(project(&path)).unwrap_or_default();
    assert!(committed == generated, "{path} is outdated; run `tollgate docs {page} > {path}`");
}

#[test]
fn pages_are_up_to_date() {
    ["settings", "environment", "metrics", "cli"].into_iter().for_each(assert_is_generated);
}

#[test]
fn the_schema_of_rules_is_up_to_date() {
    let generated = output_of(command().arg("schema"));
    let path = "docs/reference/rules.schema.json";
    let committed = fs::read_to_string(project(path)).unwrap_or_default();
    assert!(committed == generated, "{path} is outdated; run `tollgate schema > {path}`");
}
