//! Changes of one limit leave all other bytes of the files.

use proptest::{prelude::*, sample::select};
use serde_json::json;

use super::*;
use crate::Limit;

fn files(text: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("a.yaml".to_owned(), text.to_owned())])
}

fn edited(text: &str, path: &str, keys: Value) -> Result<String, String> {
    let Value::Object(keys) = keys else { panic!("an object") };
    let edited = edit_limit(&files(text), Options::default(), ("d", path), &keys);
    edited
        .map(|edited| edited.files.get("a.yaml").expect("is there").clone())
        .map_err(|error| error.to_string())
}

const FILE: &str = "\
# Limits of the edge.
domain: d   # the domain

descriptors:
  # Paying tenants.
  - key: tier
    value: pro
    rate_limit:            # agreed in May
      unit: minute   # per minute
      requests_per_unit: 100   # was 50

      # bursts
      algorithm: 'token_bucket'
    descriptors:
    - {key: api_key, rate_limit: { unit: second, requests_per_unit: 5 }}   # each key
  - key: ip
    cidr: 10.0.0.0/8
    rate_limit: {requests_per_unit: 7, unit: hour}
  - key: path
    regex: ^/v[0-9]+$
    rate_limit:
      requests_per_unit: 8
      unit: hour
";

/// Lines of one text that the other lacks, in order.
fn changed_lines(before: &str, after: &str) -> (Vec<String>, Vec<String>) {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let head = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
    let (before_rest, after_rest) = (&before[head..], &after[head..]);
    let tail =
        before_rest.iter().rev().zip(after_rest.iter().rev()).take_while(|(one, other)| one == other).count();
    let own = |lines: &[&str]| lines[..lines.len() - tail].iter().map(|line| (*line).to_owned()).collect();
    (own(before_rest), own(after_rest))
}

#[test]
fn a_value_is_replaced_where_it_stands() {
    for (path, keys, before, after) in [
        (
            "tier_pro",
            json!({"requests_per_unit": 500}),
            "      requests_per_unit: 100   # was 50",
            "      requests_per_unit: 500   # was 50",
        ),
        (
            "tier_pro",
            json!({"algorithm": "sliding_window"}),
            "      algorithm: 'token_bucket'",
            "      algorithm: sliding_window",
        ),
        (
            "tier_pro.api_key",
            json!({"requests_per_unit": 6}),
            "    - {key: api_key, rate_limit: { unit: second, requests_per_unit: 5 }}   # each key",
            "    - {key: api_key, rate_limit: { unit: second, requests_per_unit: 6 }}   # each key",
        ),
        (
            "tier_pro.api_key",
            json!({"algorithm": "token_bucket", "burst": 9}),
            "    - {key: api_key, rate_limit: { unit: second, requests_per_unit: 5 }}   # each key",
            "    - {key: api_key, rate_limit: { unit: second, requests_per_unit: 5, algorithm: token_bucket, burst: 9 }}   # each key",
        ),
        (
            "ip_10.0.0.0/8",
            json!({"requests_per_unit": null, "unlimited": true, "unit": null}),
            "    rate_limit: {requests_per_unit: 7, unit: hour}",
            "",
        ),
        ("path_~^/v[0-9]+$", json!({"unit": "day"}), "      unit: hour", "      unit: day"),
    ] {
        match edited(FILE, path, keys.clone()) {
            Ok(text) if !after.is_empty() => {
                assert_eq!(
                    changed_lines(FILE, &text),
                    (vec![before.to_owned()], vec![after.to_owned()]),
                    "{path}"
                );
            }
            other => assert!(after.is_empty() && other.is_err(), "{path} {keys}: {other:?}"),
        }
    }
}

#[test]
fn a_new_key_is_a_line_behind_one_of_the_limit_and_a_removed_one_takes_its_line_along() {
    let text = edited(FILE, "tier_pro", json!({"burst": 500})).expect("edited");
    assert_eq!(changed_lines(FILE, &text), (vec![], vec!["      burst: 500".to_owned()]));
    assert_eq!(edited(&text, "tier_pro", json!({"burst": null})).expect("edited"), FILE);
    let text =
        edited(FILE, "tier_pro", json!({"on_store_error": "deny", "requests_per_unit": 7})).expect("edited");
    let (before, after) = changed_lines(FILE, &text);
    assert!(before.len() <= 4 && after.len() == before.len() + 1, "one hunk: {before:?} {after:?}");
}

#[test]
fn line_breaks_marks_and_missing_ends_of_lines_stay() {
    let windows = FILE.replace('\n', "\r\n");
    let text = edited(&windows, "tier_pro", json!({"burst": 5})).expect("edited");
    assert_eq!(text.replace("      burst: 5\r\n", ""), windows);
    let marked = format!("\u{feff}{}", FILE.replace("agreed in May", "vereinbart für März ✓"));
    let text = edited(&marked, "ip_10.0.0.0/8", json!({"requests_per_unit": 9})).expect("edited");
    assert_eq!(text.replace("requests_per_unit: 9", "requests_per_unit: 7"), marked);
    let open = "domain: d\ndescriptors:\n- key: k\n  rate_limit:\n    unit: day\n    requests_per_unit: 5";
    assert_eq!(edited(open, "k", json!({"requests_per_unit": 6})).expect("edited"), open.replace('5', "6"));
    assert_eq!(
        edited(open, "k", json!({"on_store_error": "deny"})).expect("edited"),
        format!("{open}\n    on_store_error: deny")
    );
}

#[test]
fn an_alias_of_a_limit_is_extended_and_a_shared_one_is_refused() {
    let aliased = "domain: d\ndescriptors:\n- key: a\n  rate_limit: &std {unit: day, requests_per_unit: 5}\n- key: b\n  rate_limit: *std  # as a\n";
    let text = edited(aliased, "b", json!({"requests_per_unit": 6})).expect("edited");
    assert_eq!(text, aliased.replace("*std", "{<<: *std, requests_per_unit: 6}"));
    let error = edited(aliased, "a", json!({"requests_per_unit": 6})).expect_err("shared");
    assert!(error.contains("a.yaml:3") && error.contains("shared"), "{error}");
    let reused = "domain: d\ndescriptors:\n- &a\n  key: a\n  rate_limit: {unit: day, requests_per_unit: 5}\n- key: b\n  descriptors:\n  - *a\n";
    assert!(edited(reused, "b.a", json!({"requests_per_unit": 6})).expect_err("reused").contains("alias"));
}

fn promoted(text: &str, path: &str, overriding: Option<Value>) -> Result<String, String> {
    let overriding = overriding.map(|keys| keys.as_object().expect("an object").clone());
    let edited = promote_candidate(&files(text), Options::default(), ("d", path), overriding.as_ref());
    edited
        .map(|edited| edited.files.get("a.yaml").expect("is there").clone())
        .map_err(|error| error.to_string())
}

const CANDIDATES: &str = "\
domain: d
defaults: {algorithm: sliding_window}
descriptors:
- key: block   # kept
  rate_limit:
    algorithm: token_bucket   # the old one
    unit: minute
    requests_per_unit: 100   # agreed
    burst: 7
    candidate:
      algorithm: fixed_window
      unit: hour
      requests_per_unit: 6000
    on_store_error: deny   # last
- key: flow
  rate_limit: {unit: minute, requests_per_unit: 60, burst: 9, algorithm: token_bucket, candidate: {window: 90s, requests_per_unit: 70}}
- key: plain
  rate_limit: {unit: minute, requests_per_unit: 5, algorithm: token_bucket, burst: 8}
  descriptors:
  - key: nested
    rate_limit: {inherit: true, candidate: {unit: minute, requests_per_unit: 6}}
";

#[test]
fn a_candidate_takes_the_place_of_the_limit_with_the_keys_that_it_states() {
    let text = promoted(CANDIDATES, "block", None).expect("promoted");
    assert_eq!(
        changed_lines(CANDIDATES, &text),
        (
            vec![
                "    algorithm: token_bucket   # the old one".to_owned(),
                "    unit: minute".to_owned(),
                "    requests_per_unit: 100   # agreed".to_owned(),
                "    burst: 7".to_owned(),
                "    candidate:".to_owned(),
                "      algorithm: fixed_window".to_owned(),
                "      unit: hour".to_owned(),
                "      requests_per_unit: 6000".to_owned(),
            ],
            vec![
                "    algorithm: fixed_window   # the old one".to_owned(),
                "    unit: hour".to_owned(),
                "    requests_per_unit: 6000   # agreed".to_owned(),
            ]
        )
    );
    let text = promoted(CANDIDATES, "flow", None).expect("promoted");
    let limit = "  rate_limit: {requests_per_unit: 70, window: 90s}".to_owned();
    assert_eq!(changed_lines(CANDIDATES, &text).1, [limit]);
    assert!(promoted(CANDIDATES, "plain", None).expect_err("none").contains("no candidate"));
    let error = promoted(CANDIDATES, "plain.nested", None).expect_err("inherits an algorithm");
    assert!(error.contains("a.yaml:20") && error.contains("would differ from the candidate"), "{error}");
}

#[test]
fn a_candidate_of_an_override_keeps_what_it_omits_of_the_rule() {
    let alone = CANDIDATES.split("  descriptors:\n").next().expect("the other rules");
    let change =
        |keys: Value| changed_lines(alone, &promoted(alone, "plain", Some(keys)).expect("promoted")).1;
    let limit = "  rate_limit: {unit: minute, requests_per_unit: 9, algorithm: token_bucket, burst: 8}";
    assert_eq!(change(json!({"requests_per_unit": 9})), [limit]);
    let limit = "  rate_limit: {requests_per_unit: 5, algorithm: fixed_window, window: 30s}";
    assert_eq!(change(json!({"algorithm": "fixed_window", "window": "30s"})), [limit]);
    let error = promoted(CANDIDATES, "plain", Some(json!({"requests_per_unit": 9}))).expect_err("inherited");
    assert!(error.contains("shared"), "{error}");
}

#[test]
fn an_unknown_rule_and_an_invalid_limit_are_refused() {
    assert!(edited(FILE, "tier_free", json!({"unit": "day"})).expect_err("unknown").contains("no rule"));
    assert!(edited(FILE, "tier_pro", json!({"unit": "fortnight"})).is_err());
    assert!(edited(FILE, "tier_pro", json!({"brust": 5})).expect_err("unknown key").contains("burst"));
}

#[test]
fn every_limit_of_the_examples_can_be_changed_in_one_place() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/examples");
    let options = Options { merge_domains: true, ..Options::default() };
    let files = crate::config::read(&directory).expect("readable");
    let loaded = load(&files, options).unwrap_or_else(|error| panic!("{error}"));
    let mut edits = 0;
    for domain in loaded.domains() {
        for rule in domain.root.rules() {
            let Limit::Quota { quota, .. } = rule.limit else { continue };
            let keys = json!({"requests_per_unit": quota.limit.saturating_add(1)});
            let Value::Object(keys) = keys else { continue };
            // Alone, because all examples take a while to load.
            let name = rule.origin.0.to_string();
            let one = BTreeMap::from([(name.clone(), files.get(&name).expect("is there").clone())]);
            match edit_limit(&one, options, (&domain.name, &rule.path()), &keys) {
                Ok(edited) => {
                    let (before, after) =
                        (one.get(&name).expect("is there"), edited.files.get(&name).expect("is there"));
                    let (before, after) = changed_lines(before, after);
                    assert!(
                        before.len() <= 1 && after.len() == 1,
                        "{name} {}: {before:?} {after:?}",
                        rule.path()
                    );
                    edits += 1;
                }
                Err(EditError::Shared { .. } | EditError::Unsupported { .. } | EditError::Invalid(_)) => {}
                Err(error) => panic!("{name} {}: {error}", rule.path()),
            }
        }
    }
    assert!(edits > 30, "{edits}");
}

proptest! {
    #[test]
    fn a_change_and_its_reverse_restore_the_file_byte_for_byte(
        path in select(vec!["tier_pro", "tier_pro.api_key", "ip_10.0.0.0/8"]),
        limit in 1_u32..1_000_000,
    ) {
        let before = load(&files(FILE), Options::default()).expect("valid");
        let rule = find(&before, "d", path).expect("is there");
        let Limit::Quota { quota, .. } = rule.limit else { panic!("a limit") };
        let text = edited(FILE, path, json!({"requests_per_unit": limit})).expect("edited");
        prop_assert_eq!(edited(&text, path, json!({"requests_per_unit": quota.limit})).expect("edited"), FILE);
    }
}

#[test]
fn a_gradual_change_that_an_anchor_shares_is_not_edited() {
    for (stated, keys) in [
        ("enforce_percent: 10", json!({"enforce_percent": 50})),
        (
            "candidate: {unit: day, requests_per_unit: 9}",
            json!({"candidate": {"unit": "day", "requests_per_unit": 12}}),
        ),
    ] {
        let text = format!(
            "domain: d\ndescriptors:\n- key: a\n  rate_limit: &std {{unit: day, requests_per_unit: 5, {stated}}}\n\
             - key: b\n  rate_limit: *std\n"
        );
        let result = edited(&text, "a", keys);
        assert!(result.as_ref().is_err_and(|error| error.contains("shared")), "{stated}: {result:?}");
    }
}

#[test]
fn weights_of_another_rule_do_not_prevent_an_edit() {
    let text = "domain: d
descriptors:
- key: a
  rate_limit: {unit: day, requests_per_unit: 5}
- key: model
  weight: {large: 3, small: 1, medium: 2, tiny: 4, '*': 1}
  rate_limit: {unit: day, requests_per_unit: 5}
";
    // Each loading orders a map of the weights anew.
    for limit in 6..26 {
        edited(text, "a", json!({"requests_per_unit": limit})).expect("edited");
    }
}

#[test]
fn comments_in_braces_are_neither_lost_nor_misplaced() {
    let text = "domain: d
descriptors:
- key: a
  rate_limit: {
    unit: day,  # per day
    requests_per_unit: 5,  # five
    algorithm: token_bucket, # bucket
    burst: 7  # seven
  }
";
    let error = edited(text, "a", json!({"burst": null})).expect_err("refused");
    assert!(error.contains("beside a comment"), "{error}");
    let without = text.replace(
        "    algorithm: token_bucket, # bucket\n    burst: 7  # seven\n",
        "    algorithm: token_bucket,\n    burst: 7\n",
    );
    let expected = without.replace(",\n    burst: 7", "");
    assert_eq!(edited(&without, "a", json!({"burst": null})).expect("edited"), expected);
}
