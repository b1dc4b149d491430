//! Special cases of YAML, and hostile input.

use proptest::prelude::*;

use super::*;

#[test]
fn anchors_aliases_and_merge_keys() {
    let loaded = clean(&domain(
        "  - key: a\n    rate_limit: &limit {unit: day, requests_per_unit: 5}\n  - key: b\n    rate_limit: *limit\n  \
         - key: c\n    rate_limit:\n      <<: *limit\n      unit: hour\n  - key: e\n    rate_limit:\n      \
         <<: [{unit: second}, *limit]\n",
    ));
    let quota = |key| limit_of(&rule(&loaded, &[(key, "")]).unwrap()).0.to_string();
    assert_eq!(["a", "b", "c", "e"].map(quota), ["5 per day", "5 per day", "5 per hour", "5 per second"]);
}

#[test]
fn merging_after_a_key_that_it_has_too_is_warned_of() {
    let yaml = domain(
        "  - key: a\n    rate_limit: &limit {unit: day, requests_per_unit: 5}\n  - key: b\n    rate_limit:\n      \
         unit: hour\n      <<: *limit\n",
    );
    assert_says(&warnings(&yaml), &["a.yaml:8", "`<<` changes `unit` on line 7"]);
    assert_says(
        &errors("domain: d\n<<: 5\n"),
        &["a.yaml:2: expected a mapping or a list of mappings after `<<`"],
    );
}

#[test]
fn pairs_take_effect_in_order_and_limits_by_field_as_in_envoyproxy_ratelimit() {
    let quota = |yaml: &str| {
        let rule = rule(&loads(yaml), &[("k", "")]).unwrap();
        format!("{}, {}", limit_of(&rule).0, rule.name)
    };
    let named = "- &a {key: a, rate_limit: &al {unit: day, requests_per_unit: 1, name: n}}\n- &b {key: b, rate_limit: {unit: hour, requests_per_unit: 2}}\n";
    for (pairs, expected) in [
        ("<<: *a, key: k", "1 per day, n"),
        ("<<: *a, <<: *b, key: k", "2 per hour, n"),
        ("<<: [*a, *b], key: k", "1 per day, n"),
        ("<<: *a, key: k, rate_limit: {requests_per_unit: 7}", "7 per day, n"),
        ("key: k, rate_limit: {unit: hour, <<: *al}", "1 per day, n"),
        ("key: k, rate_limit: {unit: hour}, rate_limit: {requests_per_unit: 9}", "9 per hour, "),
    ] {
        let yaml = format!("domain: d\ndescriptors:\n{named}- {{{pairs}}}\n");
        assert_eq!(quota(&yaml), expected, "{pairs}");
    }
}

#[test]
fn quotes_tags_marks_and_blocks() {
    for value in ["\"x\"", "'x'", "!!str x", "|-\n      x", ">-\n      x"] {
        let yaml = domain(&format!(
            "  - key: k\n    value: {value}\n    rate_limit: {{unit: day, requests_per_unit: !!int \"5\"}}\n"
        ));
        assert!(rule(&clean(&yaml), &[("k", "x")]).is_some(), "{value}");
    }
    clean("\u{feff}domain: d\n");
    clean("---\ndomain: d\n...\n");
    clean("domain: d\r\ndescriptors:\r\n  - key: a\r\n");
    assert_says(&errors("domain: d\nunit: !!float 5\n"), &["a number with a fraction"]);
}

#[test]
fn bombs_of_aliases_are_rejected() {
    let mut yaml = "domain: d\nmetadata:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let before = level - 1;
        let aliases = vec![format!("*a{before}"); 10].join(", ");
        yaml.push_str(&format!("  a{level}: &a{level} [{aliases}]\n"));
    }
    assert_says(&errors(&yaml), &["anchors and aliases of this file repeat too much"]);

    let text = "x".repeat(60 << 10);
    let aliases = vec!["*big"; 1_200].join(", ");
    let yaml = format!("domain: d\nmetadata: {{a: &big {text}, b: [{aliases}]}}\n");
    assert_says(
        &errors(&yaml),
        &["a.yaml:2: metadata.b[", "anchors and aliases of this file repeat too much"],
    );
    assert_says(&errors("domain: d\nmetadata: &a [*a]\n"), &["is inside the node that it names"]);
}

#[test]
fn deep_nesting_is_rejected_in_any_notation() {
    let open = "[".repeat(100_000);
    assert_says(&errors(&format!("domain: d\nmetadata: {open}\n")), &["a.yaml:"]);
    let open = "{a: ".repeat(1_000);
    assert_says(&errors(&format!("domain: d\nmetadata: {open}\n")), &["a.yaml:"]);
    let dashes = "- ".repeat(1_000);
    assert_says(&errors(&format!("domain: d\ndescriptors:\n  {dashes}\n")), &["a.yaml:3", "64 levels deep"]);
    let nested = |levels: usize| -> String {
        let indents = (0..levels).map(|level| "  ".repeat(level));
        indents.map(|indent| format!("{indent}descriptors:\n{indent}- key: k\n")).collect()
    };
    assert_says(&errors(&format!("domain: d\n{}", nested(40))), &["64 levels deep"]);
    clean(&format!("domain: d\n{}", nested(25)));
}

#[test]
fn text_that_is_not_utf_8_names_its_line() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("a.yaml"), b"domain: d\n# caf\xe9\n").unwrap();
    let text = load(directory.path(), &Options::default()).unwrap_err().to_string();
    assert_says(&text, &["a.yaml:2: invalid UTF-8"]);
}

fn never_panics(content: &[u8]) {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("a.yaml"), content).unwrap();
    for strict in [false, true] {
        if let Err(error) = load(directory.path(), &Options { strict, ..Options::default() }) {
            assert_ne!(error.to_string(), "");
        }
    }
}

/// Pieces that reach deeper into the loader than random text.
fn piece() -> impl Strategy<Value = String> {
    let keys = "(domain|descriptors|key|value|rate_limit|unit|requests_per_unit|replaces|name|cidr|regex|window|<<|metadata|defaults|burst|algorithm)";
    let values = "(d|a|\\*|x\\*|1|-1|1.5|on|~|day|30s|10.0.0.0/8|token_bucket|true|&a|\\*a|!!str|!x|'|\"|\\[|\\]|\\{|\\}|\\||>|%|,|#|\\?|--- )";
    prop_oneof![
        format!("\n {{0,6}}(- )?{keys}: ?{values}?").prop_map_into_string(),
        values.prop_map_into_string(),
    ]
}

trait IntoStrings {
    fn prop_map_into_string(self) -> BoxedStrategy<String>;
}

impl<T: AsRef<str>> IntoStrings for T {
    fn prop_map_into_string(self) -> BoxedStrategy<String> {
        proptest::string::string_regex(self.as_ref()).expect("is an expression").boxed()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_bytes_never_panic(content in proptest::collection::vec(any::<u8>(), 0..200)) {
        never_panics(&content);
    }

    #[test]
    fn arbitrary_text_never_panics(content in "\\PC{0,200}") {
        never_panics(content.as_bytes());
    }

    #[test]
    fn arbitrary_pieces_of_configurations_never_panic(pieces in proptest::collection::vec(piece(), 0..40)) {
        never_panics(format!("domain: d\n{}", pieces.concat()).as_bytes());
    }
}

#[test]
fn control_characters_are_rejected_where_they_stand() {
    for (content, problem) in [
        (&b"domain: d\n\0descriptors: 5\n"[..], "a.yaml:2: control character \\u{0}"),
        (b"domain: \"\x1b[31m\"\n", "a.yaml:1: control character \\u{1b}"),
        (b"domain: d # \xc2\x9f\n", "a.yaml:1: control character \\u{9f}"),
        (b"\xff\xfed\0o\0", "a.yaml:1: invalid UTF-8; expected a file saved as UTF-8"),
    ] {
        let loaded = load_files([("a.yaml".to_owned(), content.to_vec())], Options::default());
        assert_says(&loaded.expect_err("it loads").to_string(), &[problem]);
    }
    clean("\u{feff}domain: d\r\n# tab\there, next line\u{85}, \u{1F600}\r\n");
}
