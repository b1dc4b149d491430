//! Texts that are small to write and large to load.

use std::time::{Duration, Instant};

use super::*;

/// Far more than a bomb takes, without optimizations and beside other tests; much less than one that goes off.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Problems of a file, found within the time limit.
#[track_caller]
fn defused(yaml: &str) -> String {
    let begun = Instant::now();
    let text = errors(yaml);
    assert!(begun.elapsed() < TIMEOUT, "took {:?}", begun.elapsed());
    assert!(text.len() < 300_000, "{} bytes of problems", text.len());
    text
}

#[test]
fn a_file_of_too_many_values_says_where_they_become_too_many() {
    let list = format!("domain: d\nmetadata: [{}]\n", "a,".repeat(410_000));
    assert_says(&defused(&list), &["a.yaml:2: metadata[399997]: more than 400000 values", "split the file"]);
}

#[test]
fn a_text_that_is_longer_than_any_value_of_a_request_is_rejected() {
    let long = "x".repeat((64 << 10) + 1);
    for yaml in [
        format!("domain: {long}\n"),
        format!("domain: \"{long}\"\n"),
        format!("domain: |\n  {long}\n"),
        format!("domain: >\n  {}\n", "x\n  ".repeat(40_000)),
    ] {
        assert_says(&defused(&yaml), &["a.yaml:", "domain: text longer than 64 KiB"]);
    }
    assert_says(&defused(&format!("domain: d\n{long}: 1\n")), &["a.yaml:2"]);
}

#[test]
fn more_mistakes_than_anyone_reads_are_a_report_of_a_thousand() {
    let yaml = domain(&"- {x: 1}\n".repeat(40_000));
    let text = defused(&yaml);
    assert_says(
        &text,
        &["a.yaml:3: descriptors[0].x: unknown key", "and possibly more; the rest was not checked"],
    );
    assert!(text.lines().count() <= 1_001);
}

#[test]
fn mistakes_below_a_long_key_do_not_repeat_it_whole() {
    let key = "k".repeat(60 << 10);
    let items = "[],".repeat(10_000);
    let text = defused(&format!(
        "domain: d\ndescriptors:\n- key: a\n  rate_limit: {{unit: day, requests_per_unit: 1}}\n  metadata:\n    ? {key}\n    : {{? [{items}] : 1}}\n"
    ));
    assert_says(&text, &["kkk…"]);
}

#[test]
fn warnings_of_repeated_keys_are_bounded() {
    let maps = "{a: 1, a: 2},".repeat(10_000);
    assert_says(
        &loads(&format!("domain: d\nmetadata: [{maps}]\n")).warnings.to_string(),
        &["metadata[998]", "further ones are omitted"],
    );
    assert_says(
        &defused(&format!("domain: d\nmetadata: {{{}}}\n", "a: 1,".repeat(10_000))),
        &["this mapping repeats its keys too often"],
    );
}

#[test]
fn merging_a_large_mapping_again_and_again_is_rejected() {
    let fields: String = (0..20_000).map(|at| format!("k{at}: 1,")).collect();
    for large in [format!("rate_limit: {{{fields}}}"), format!("<<: {{rate_limit: {{{fields}}}}}")] {
        let merges = "  <<: {rate_limit: {}}\n".repeat(20_000);
        let yaml = format!("domain: d\ndescriptors:\n- {large}\n{merges}");
        assert_says(&defused(&yaml), &["a.yaml:", "the mappings of this file are merged too often"]);
    }
}

#[test]
fn rules_below_long_keys_do_not_copy_them_without_end() {
    let key = "k".repeat(60 << 10);
    let rules: String = (0..3_000)
        .map(|at| format!("    - {{key: a{at}, rate_limit: {{unit: day, requests_per_unit: 1}}}}\n"))
        .collect();
    let yaml = format!("domain: d\ndescriptors:\n- key: {key}\n  descriptors:\n    {}", rules.trim_start());
    assert_says(
        &defused(&yaml),
        &["the paths of the rules up to this one", "more than 128 MiB", "shorter keys", "not checked"],
    );
}

#[test]
fn wildcards_are_compared_no_longer_than_it_is_worth() {
    let yaml: String = (0..30_000).map(|at| format!("- {{key: \"v*{at}*\"}}\n")).collect();
    let begun = Instant::now();
    loads(&domain(&yaml));
    assert!(begun.elapsed() < TIMEOUT, "took {:?}", begun.elapsed());
}

#[test]
fn a_hash_tag_of_too_many_keys_is_rejected() {
    let keys: String = (0..100_000).map(|at| format!("k{at},")).collect();
    assert_says(
        &defused(&format!("domain: d\nhash_tag: [{keys}]\n")),
        &["a.yaml:2: hash_tag: has too many keys; expected at most 64"],
    );
}

/// A descriptor with an expression, in quotes as they are.
fn expression(text: &str) -> String {
    format!("- {{key: k, regex: '{text}', rate_limit: {{unit: day, requests_per_unit: 1}}}}\n")
}

#[test]
fn expressions_are_bounded_together() {
    let yaml: String = (0..4_000).map(|at| expression(&format!(r"^/api/v{at}/\w+$"))).collect();
    let text = defused(&domain(&yaml));
    assert_says(&text, &["].regex: the expressions up to this one take more than 128 MiB", "[^/]+"]);
    assert_eq!(text.lines().count(), 1, "reported once");
    let line: usize = text.split(':').nth(1).and_then(|line| line.parse().ok()).expect("a line");
    assert!((1_500..3_000).contains(&line), "{line}");
    let yaml: String = (0..4_000).map(|at| expression(&format!("^/api/v{at}/[^/]+$"))).collect();
    clean(&domain(&yaml));
}

#[test]
fn expressions_that_are_too_large_are_not_compiled_without_end() {
    let yaml: String = (0..10_000).map(|at| expression(&format!(r"(\w{{100}}){{100}}{at}"))).collect();
    assert_says(&defused(&domain(&yaml)), &["is too large", "take more than 128 MiB together"]);
}
