//! The pages of `docs/reference` that `tollgate docs` generates are up to date.

use crate::support::prelude::*;

fn assert_is_generated(page: &str) {
    let output = command().args(["docs", page]).output().expect("it runs");
    assert!(output.status.success(), "{page}: {output:?}");
    let path = format!("docs/reference/{page}.md");
    let committed = fs::read_to_string(project(&path)).unwrap_or_default();
    let generated = String::from_utf8(output.stdout).expect("a text");
    assert!(committed == generated, "{path} is outdated; run `tollgate docs {page} > {path}`");
}

#[test]
fn pages_are_up_to_date() {
    ["settings", "environment", "metrics", "cli"].into_iter().for_each(assert_is_generated);
}

#[test]
fn the_schema_of_rules_is_up_to_date() {
    let output = command().arg("schema").output().expect("it runs");
    let path = "docs/reference/rules.schema.json";
    let committed = fs::read_to_string(project(path)).unwrap_or_default();
    assert!(committed.as_bytes() == output.stdout, "{path} is outdated; run `tollgate schema > {path}`");
}
