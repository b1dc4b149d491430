use proptest::{collection::vec, prelude::*};

use super::*;

fn key(domain: &str, entries: &[(String, String)]) -> CellKey {
    CellKey::open(domain, entries.iter().map(|(key, value)| Entry { key, value }))
}

fn pairs(entries: &[(&str, &str)]) -> Vec<(String, String)> {
    entries.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

#[test]
fn a_name_of_another_region_is_taken_only_if_a_shared_counter_of_the_domain_has_it() {
    let entry = |value| Entry { key: "k}", value };
    let long = "v".repeat(300);
    for cell in [
        CellKey::open("d|{", [entry("a~b")].into_iter()),
        CellKey::open("d|{", [entry("a")].into_iter()).with_entries([entry("b")].into_iter()),
        CellKey::open("d|{", [entry(&long)].into_iter()).with_entries([entry(&long)].into_iter()),
    ] {
        assert_eq!(CellKey::of_peer("d|{", cell.as_bytes()), Some(cell.clone()));
    }
    let plain = CellKey::open("d", [entry("a")].into_iter());
    assert_eq!(CellKey::of_peer("e", plain.as_bytes()), None);
    for name in ["", "{d|", "{d|k=v}~utilization", "{d|k=v}~0.60", "{d|k=v}more", "{tollgate-rules}head"] {
        assert_eq!(CellKey::of_peer("d", name.as_bytes()), None, "{name}");
    }
    assert_eq!(CellKey::of_peer("d", format!("{{d|{long}{long}}}").as_bytes()), None);
}

#[test]
fn names_are_readable_and_escape_their_structure() {
    assert_eq!(key("edge", &pairs(&[("api_key", "abc")])).to_string(), "{edge|api_key=abc}");
    assert_eq!(key("a|b", &pairs(&[("k{", "v}"), ("", "")])).to_string(), "{a%7cb|k%7b=v%7d,=}");
    let cell = key("edge", &pairs(&[("k", "v")])).limit_override(None, Algorithm::FixedWindow, 60);
    assert_eq!(cell.to_string(), "{edge|k=v}~0.60");
    assert_eq!(cell.tag(), b"{edge|k=v}");
}

#[test]
fn a_long_tag_is_hashed_and_its_cells_keep_their_ends_apart() {
    let long = key("edge", &pairs(&[("k", &"v".repeat(10_000))]));
    assert_eq!(long.as_bytes().len(), 35);
    let other = long.clone().limit_override(None, Algorithm::FixedWindow, 60);
    assert_eq!(other.tag(), long.tag());
    assert_ne!(other, long);
    assert_ne!(long.tag(), key("edge", &pairs(&[("k", &"v".repeat(10_001))])).tag());
}

#[test]
fn slots_are_those_that_redis_documents() {
    assert_eq!(crc16(b"123456789"), 0x31c3);
    // `CLUSTER KEYSLOT {foo}` and `CLUSTER KEYSLOT foo` return 12182.
    assert_eq!(crc16(b"foo") % 16_384, 12_182);
}

/// Text of the characters that structure names, and some others.
fn awkward() -> impl Strategy<Value = String> {
    prop_oneof!["[{}|=,%@#~+ a0é\n]{0,6}", ".{0,8}"]
}

/// Open values beyond the tag's, and the choice among the other suffixes of a name.
type CellParts = (Vec<(String, String)>, u32);

fn cell_parts() -> impl Strategy<Value = CellParts> {
    let long = Just(vec![("k".to_owned(), "v".repeat(10_000))]);
    (prop_oneof![4 => vec((awkward(), awkward()), 0..3), 1 => long], 0..6_u32)
}

fn cell(tag: &CellKey, (more, ending): &CellParts) -> CellKey {
    let mut cell = tag.clone();
    if !more.is_empty() {
        cell = cell.with_entries(more.iter().map(|(key, value)| Entry { key, value }));
    }
    let record = RecordId::alone(Algorithm::Concurrency);
    match ending {
        0 => cell,
        1 => cell.dedicated(record),
        2 => cell.dedicated(RecordId::alone(Algorithm::SlidingWindowLog)),
        3 => cell.limit_override(None, Algorithm::FixedWindow, 60),
        4 => cell.limit_override(Some(record), Algorithm::FixedWindow, 60),
        _ => cell.limit_override(Some(record), Algorithm::TokenBucket, 60),
    }
}

proptest! {
    #[test]
    fn different_parts_make_different_names(
        domains in (awkward(), awkward()),
        left in vec((awkward(), awkward()), 1..4),
        right in vec((awkward(), awkward()), 1..4),
    ) {
        let same = domains.0 == domains.1 && left == right;
        prop_assert_eq!(key(&domains.0, &left) == key(&domains.1, &right), same);
    }

    #[test]
    fn different_cells_of_one_tag_have_different_names(
        entries in vec((awkward(), awkward()), 1..3),
        left in cell_parts(),
        right in cell_parts(),
    ) {
        let tag = key("d", &entries);
        let (first, second) = (cell(&tag, &left), cell(&tag, &right));
        prop_assert_eq!(first.tag(), second.tag());
        prop_assert_eq!(first == second, left == right);
        prop_assert_eq!(first == tag, left == (Vec::new(), 0));
        // The memory taken by a counter's name is bounded whatever clients send.
        prop_assert!(first.as_bytes().len() <= 352);
    }

    #[test]
    fn redis_finds_the_tag_where_we_put_it(domain in awkward(), entries in vec((awkward(), awkward()), 1..3)) {
        let key = key(&domain, &entries);
        let inner = &key.tag()[1..key.tag().len() - 1];
        let braces = inner.iter().filter(|byte| matches!(byte, b'{' | b'}')).count();
        prop_assert!(!inner.is_empty() && braces == 0);
    }
}

fn primary_key(domain: &str, entries: &[(String, String)]) -> CellKey {
    key(domain, entries).at_primary(domain)
}

fn entry(value: &str) -> Pairs {
    vec![("k".to_owned(), value.to_owned())]
}

#[test]
fn a_name_at_the_primary_region_has_a_tag_of_its_own() {
    let cell = primary_key("edge", &entry("v"));
    assert_eq!((cell.to_string().as_str(), cell.tag()), ("{~edge|k=v}", &b"{~edge|k=v}"[..]));
    assert!(cell.is_at_primary() && cell.open_values("other").is_none());
    let plain = CellKey::open("~edge", std::iter::empty());
    assert!(!plain.is_at_primary(), "the tilde of a domain is escaped");
    let record = RecordId::alone(Algorithm::Concurrency);
    let own = cell.clone().dedicated(record);
    assert_eq!(CellKey::of_call("edge", own.as_bytes(), record, true), Some(own.clone()));
    assert_eq!(CellKey::of_call("edge", own.as_bytes(), record, false), None);
    assert_eq!(CellKey::of_call("edge", cell.as_bytes(), record, true), None);
    assert_eq!(own.open_values("edge"), Some(entry("v")));
}

#[test]
fn a_hashed_name_shows_its_domain() {
    let long = entry(&"v".repeat(10_000));
    let cells = ["one", "two"].map(|domain| primary_key(domain, &long));
    let record = RecordId::alone(Algorithm::FixedWindow);
    for (domain, [own, other]) in [("one", [0, 1]), ("two", [1, 0])] {
        let taken = |at: usize| CellKey::of_call(domain, cells[at].as_bytes(), record, false);
        assert_eq!((taken(own), taken(other)), (Some(cells[own].clone()), None));
    }
    assert_eq!(cells[0].open_values("one"), None);
}

#[test]
fn a_name_that_no_counter_of_the_domain_has_is_not_taken() {
    let record = RecordId::alone(Algorithm::FixedWindow);
    for name in [
        "",
        "{~edge|",
        "{edge|k=v}",
        "{~edge|k=v}~utilization",
        "{~edge|k=v}~0.60",
        "{~edge|k=v}more",
        "{~edge|k=v}+k=v w",
        "{~edge|k=v}+k={tollgate-rules}",
        "{tollgate-rules}head",
    ] {
        assert_eq!(CellKey::of_call("edge", name.as_bytes(), record, false), None, "{name}");
    }
    let long = format!("{{~edge|{}}}", "v".repeat(1_000));
    assert_eq!(CellKey::of_call("edge", long.as_bytes(), record, false), None);
}

proptest! {
    #[test]
    fn names_are_taken_and_read_as_they_were_made(
        domain in awkward(),
        tag in vec((awkward(), awkward()), 1..3),
        beyond in vec((awkward(), awkward()), 0..3),
        has_own_key in any::<bool>(),
    ) {
        let record = RecordId::alone(Algorithm::SlidingWindowLog);
        let mut cell = primary_key(&domain, &tag);
        if !beyond.is_empty() {
            cell = cell.with_entries(beyond.iter().map(|(key, value)| Entry { key, value }));
        }
        if has_own_key {
            cell = cell.dedicated(record);
        }
        let taken = CellKey::of_call(&domain, cell.as_bytes(), record, has_own_key);
        prop_assert_eq!(taken.as_ref(), Some(&cell));
        let is_hashed = cell.to_string().contains('#');
        let all: Pairs = tag.into_iter().chain(beyond).collect();
        prop_assert_eq!(cell.open_values(&domain), (!is_hashed).then_some(all));
    }
}
