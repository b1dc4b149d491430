//! Matching compared with a naive model of envoyproxy/ratelimit's rules.

use std::collections::HashSet;

use proptest::{collection::vec, prelude::*};

use super::*;

/// A configured descriptor with its children.
#[derive(Clone, Debug)]
struct Stated {
    key: String,
    value: String,
    has_rule: bool,
    children: Vec<Stated>,
}

impl Stated {
    fn text(&self) -> String {
        if self.value.is_empty() { self.key.clone() } else { format!("{}_{}", self.key, self.value) }
    }
}

fn rule(name: &str) -> Arc<Rule> {
    Arc::new(Rule { name: name.into(), ..Rule::default() })
}

/// Builds a level without the descriptors that repeat a text; `stated` is reduced likewise, so that the model has the same
/// ones.
fn build(stated: &mut Vec<Stated>, path: &str) -> Level {
    let mut level = Level::default();
    let mut texts = HashSet::new();
    stated.retain_mut(|one| {
        let is_new = texts.insert(one.text());
        let path = format!("{path}.{}", one.text());
        let rule = one.has_rule.then(|| rule(&path));
        let node = Node { rule, children: build(&mut one.children, &path), ..Node::default() };
        if is_new {
            level.insert(Matcher::Stated { key: &one.key, value: &one.value }, node);
        }
        is_new
    });
    level
}

fn star_matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((prefix, rest)) => text.strip_prefix(prefix).is_some_and(|text| {
            (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| star_matches(rest, &text[at..]))
        }),
    }
}

/// The lookup of envoyproxy/ratelimit: exact text, then patterns in order, then the key; without backtracking.
fn model<'a>(stated: &'a [Stated], entry: &(String, String)) -> Option<&'a Stated> {
    let text = format!("{}_{}", entry.0, entry.1);
    let exact = stated.iter().find(|one| one.text() == text);
    let pattern = || stated.iter().find(|one| one.text().contains('*') && star_matches(&one.text(), &text));
    let key = || stated.iter().find(|one| one.text() == entry.0);
    exact.or_else(pattern).or_else(key)
}

fn model_rule(stated: &[Stated], entries: &[(String, String)], path: &str) -> Option<String> {
    let (first, rest) = entries.split_first()?;
    let found = model(stated, first)?;
    let path = format!("{path}.{}", found.text());
    match rest {
        [] => found.has_rule.then_some(path),
        rest => model_rule(&found.children, rest, &path),
    }
}

fn stated() -> impl Strategy<Value = Vec<Stated>> {
    let one = ("(a|b|a_b|a\\*|_)", "(|a|b|a_b|b_a|\\*|a\\*|\\*b|a\\*b|é\\*)", any::<bool>());
    let leaf = one.prop_map(|(key, value, has_rule)| Stated { key, value, has_rule, children: vec![] });
    vec(leaf, 0..5).boxed().prop_recursive(2, 24, 4, move |inner| {
        let node = (one, inner).prop_map(|((key, value, has_rule), children)| Stated {
            key,
            value,
            has_rule,
            children,
        });
        vec(node, 0..5)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn matching_agrees_with_the_naive_model(
        mut stated in stated(),
        requests in vec(vec(("(a|b|a_b|ab|_|)", "(|a|b|ab|a_b|b_a|éa|\\*)"), 0..4), 1..12),
    ) {
        let level = build(&mut stated, "");
        for request in requests {
            let entries: Vec<Entry<'_>> = request.iter().map(|(key, value)| Entry { key, value }).collect();
            let found = level.rule(&entries).map(|rule| rule.name.to_string());
            prop_assert_eq!(found, model_rule(&stated, &request, ""), "{:?} in {:#?}", request, stated);
        }
    }

    #[test]
    fn the_first_matching_branch_is_selected(
        mut stated in stated(),
        key in "(a|b|a_b|_)",
        value in "(|a|b|ab|a_b|b_a)",
    ) {
        let level = build(&mut stated, "");
        let entry = Entry { key: &key, value: &value };
        let taken = level.find(entry).map(std::ptr::from_ref);
        prop_assert_eq!(level.branches(entry).first().map(|(_, node)| std::ptr::from_ref(*node)), taken);
    }
}

#[test]
fn ranges_and_expressions_come_after_wildcards_and_before_the_key() {
    let mut level = Level::default();
    let node = |name| Node { rule: Some(rule(name)), ..Node::default() };
    let stated = |value| Matcher::Stated { key: "ip", value };
    let cidr = |range: &str| Matcher::Cidr("ip", range.parse().expect("a range"));
    let regex = |text| Matcher::Regex("ip", Regex::new(text).expect("an expression"));
    for (matcher, name) in [
        (regex("^10"), "regex"),
        (regex("9$"), "second regex"),
        (stated(""), "key"),
        (cidr("10.0.0.0/8"), "wide"),
        (cidr("10.1.0.0/16"), "narrow"),
        (stated("10.1.2.*"), "wildcard"),
        (stated("10.1.2.3"), "exact"),
    ] {
        level.insert(matcher, node(name));
    }
    let found = |value: &str| level.rule(&[Entry { key: "ip", value }]).map(|rule| rule.name.to_string());
    for (value, name) in [
        ("10.1.2.3", "exact"),
        ("10.1.2.4", "wildcard"),
        ("10.1.3.4", "narrow"),
        ("10.2.3.4", "wide"),
        ("10x", "regex"),
        ("99", "second regex"),
        ("x", "key"),
    ] {
        assert_eq!(found(value).as_deref(), Some(name), "{value}");
    }
}
