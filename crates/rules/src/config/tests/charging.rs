//! Charging of a domain: `atomic` and `hash_tag`.

use tollgate_core::{algorithm::Charging, descriptor::RequestBounds};

use super::*;
use crate::{Domain, TableSize};

const MERGED: Options = Options {
    merge_domains: true,
    strict: false,
    allow_empty: false,
    regions: TableSize::Unknown,
    overlay: None,
    stop_when_denied: false,
    bounds: RequestBounds { max_descriptors: 9, max_entries: 9, max_text_bytes: 9 },
};

/// The domain `d` of one file with these lines at its root.
fn with_root(lines: &str) -> String {
    format!("domain: d\n{lines}descriptors:\n  - key: client\n    descriptors: [{{key: path, {LIMIT}}}]\n")
}

fn domain_of(loaded: &Loaded) -> &Domain {
    loaded.rules.domain("d").unwrap()
}

fn merged(first: &str, second: &str) -> Result<Loaded, LoadError> {
    let second = format!("# Another file.\ndomain: d\n{second}");
    load_all(&[("a.yaml", &with_root(first)), ("b.yaml", &second)], MERGED)
}

#[test]
fn a_domain_says_how_its_requests_are_charged() {
    for (line, charging) in [
        ("", Charging::Independent),
        ("atomic: false\n", Charging::Independent),
        ("atomic: ~\n", Charging::Independent),
        ("atomic: true\n", Charging::AllOrNone),
    ] {
        assert_eq!(domain_of(&clean(&with_root(line))).charging, charging, "{line}");
    }
    assert_eq!(
        errors(&with_root("atomic: all\n")),
        "a.yaml:2: atomic: expected true or false, found the text \"all\""
    );
    assert_eq!(
        errors(&domain("  - key: k\n    atomic: true\n")),
        "a.yaml:4: descriptors[0].atomic: does not belong to a descriptor; it belongs to the root of a file"
    );
}

#[test]
fn files_of_a_domain_charge_in_one_way() {
    for (first, second) in
        [("atomic: true\n", ""), ("", "atomic: true\n"), ("atomic: true\n", "atomic: yes\n")]
    {
        let loaded = merged(first, second).unwrap();
        assert_eq!(domain_of(&loaded).charging, Charging::AllOrNone);
        assert!(loaded.warnings.is_empty());
    }
    assert_eq!(
        merged("atomic: true\n", "atomic: false\n").unwrap_err().to_string(),
        "b.yaml:3: atomic: differs from `true` at a.yaml:2; expected the same value in all files of a domain"
    );
}

#[test]
fn a_domain_names_the_keys_of_its_hash_tags_in_their_order() {
    let tag = |lines: &str| domain_of(&clean(&with_root(lines))).hash_tag.clone();
    assert_eq!(tag(""), Box::default());
    assert_eq!(tag("hash_tag: ~\n"), Box::default());
    assert_eq!(tag("hash_tag: [client]\n"), ["client".into()].into());
    assert_eq!(tag("hash_tag:\n- path\n- client\n"), ["path".into(), "client".into()].into());
}

#[test]
fn an_invalid_hash_tag_is_rejected() {
    for (tag, says) in [
        ("[]", "hash_tag: is empty; expected the keys whose values form the hash tag"),
        ("client", "hash_tag: expected a list, found the text \"client\""),
        ("['']", "hash_tag[0]: is empty; expected a key of the domain's descriptors"),
        ("[client, path, client]", "hash_tag[2]: is a duplicate; expected each key once"),
        ("[client, ~]", "hash_tag[1]: expected a text, found nothing"),
        ("[client, [path]]", "hash_tag[1]: expected a text, found a list"),
    ] {
        assert_eq!(errors(&with_root(&format!("hash_tag: {tag}\n"))), format!("a.yaml:2: {says}"));
    }
}

#[test]
fn files_of_a_domain_have_one_hash_tag() {
    for (first, second) in [
        ("hash_tag: [client]\n", ""),
        ("", "hash_tag: [client]\n"),
        ("hash_tag: [client]\n", "hash_tag: [client]\n"),
    ] {
        let loaded = merged(first, second).unwrap();
        assert_eq!(domain_of(&loaded).hash_tag, ["client".into()].into());
        assert!(loaded.warnings.is_empty());
    }
    for second in ["[client]", "[path, client]", "[client, path, x]"] {
        assert_eq!(
            merged("hash_tag: [client, path]\n", &format!("hash_tag: {second}\n")).unwrap_err().to_string(),
            "b.yaml:3: hash_tag: differs from [client, path] at a.yaml:2; expected the same keys in all files of \
             a domain"
        );
    }
}

#[test]
fn keys_of_a_hash_tag_that_no_descriptor_has_are_likely_mistakes() {
    assert_eq!(
        warnings(&with_root("hash_tag:\n  - path\n  - cleint\n")),
        "a.yaml:4: warning: hash_tag[1]: no descriptor of the domain `d` has the key `cleint`; did you mean \
         `client`?"
    );
    assert_eq!(
        warnings(&with_root("hash_tag: [tenant]\n")),
        "a.yaml:2: warning: hash_tag[0]: no descriptor of the domain `d` has the key `tenant`"
    );
    // Another file of the domain may have it, and so may a pattern.
    let second = format!("descriptors: [{{key: tenant, {LIMIT}}}]\n");
    assert!(merged("hash_tag: [tenant]\n", &second).unwrap().warnings.is_empty());
    clean(&format!("domain: d\nhash_tag: [api_key]\ndescriptors: [{{key: 'api_*', {LIMIT}}}]\n"));
}
