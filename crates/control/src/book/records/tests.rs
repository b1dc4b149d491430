use std::collections::BTreeMap as Map;

use proptest::prelude::*;

use super::*;
use crate::book::BookName;
use crate::{AutomaticEntry, AutomaticMode, Control, ListPair, RulesSource};

pub(in crate::book) fn entry(value: &str, limit: u32, expires_at_ms: Option<u64>) -> OverrideEntry {
    OverrideEntry {
        domain: "d".into(),
        rule: "api_key".into(),
        descriptor: vec![Pair { key: "api_key".into(), value: value.into() }],
        rate_limit: [("requests_per_unit".to_owned(), limit.into())].into_iter().collect(),
        reason: "r".into(),
        author: "ada".into(),
        created_at_ms: 0,
        expires_at_ms,
    }
}

pub(in crate::book) fn all(book: &Book) -> Vec<RecordChange> {
    book.changes_since(0, 0).collect()
}

fn change(revision: u64, value: &str, limit: Option<u32>) -> RecordChange {
    let stated = entry(value, limit.unwrap_or_default(), None);
    let record = Record::Override(stated);
    RecordChange { revision, key: record.key(), record: limit.map(|_| record) }
}

fn limits(book: &Book) -> Map<String, u64> {
    let limit = |held: &HeldOverride| {
        let entry = held.entry();
        let limit = entry.rate_limit.get("requests_per_unit").and_then(|limit| limit.as_u64());
        (entry.key_text(), limit.expect("stated"))
    };
    book.overrides.values().map(limit).collect()
}

#[test]
fn a_page_has_what_is_selected_in_the_order_of_keys() {
    let control = Control::memory(RulesSource::Directory);
    let values = ["a", "b", "c"].map(|value| Record::Override(entry(value, 5, None)));
    let ended = Record::ListEntry(crate::lists::tests::entry("k", Some(10)));
    let off = Record::Switch(crate::lists::tests::switch("api_key", None));
    let put = |record: Record| RecordChange { revision: 1, key: record.key(), record: Some(record) };
    let puts: Vec<_> = values.into_iter().chain([ended, off]).map(put).collect();
    assert_eq!(control.0.book(BookName::Operators).record(&puts, |_| ()), [""; 0]);
    let of = |selection: RecordSelection| {
        let page = control.records(&RecordSelection { limit: selection.limit.max(2), ..selection });
        (page.records.into_iter().map(|view| view.key).collect::<Vec<_>>(), page.is_truncated)
    };
    let (all, is_truncated) = of(RecordSelection { limit: 9, ..RecordSelection::default() });
    assert!(all.len() == 4 && all.is_sorted() && !is_truncated, "{all:?}");
    let page = of(RecordSelection { after: Some(all[0]), ..RecordSelection::default() });
    assert_eq!(page, (all[1..3].to_vec(), true));
    let page = of(RecordSelection { after: Some(all[1]), ..RecordSelection::default() });
    assert_eq!(page, (all[2..].to_vec(), false));
    let found = |search: &str| {
        let search = Some(search.to_owned());
        of(RecordSelection { search, limit: 9, ..RecordSelection::default() }).0.len()
    };
    assert_eq!(["", "API_KEY=b", "Ada", "none"].map(found), [4, 1, 3, 0]);
    let kind = Some(RecordKind::Switch);
    assert_eq!(of(RecordSelection { kind, ..RecordSelection::default() }).0.len(), 1);
}

#[test]
fn the_key_of_a_record_never_changes() {
    let automatic = AutomaticEntry {
        mode: AutomaticMode::Enforce,
        domain: "d".into(),
        descriptor: vec![ListPair::exact("k", "v")],
        rule: "k".into(),
        reason: String::new(),
        author: String::new(),
        created_at_ms: 0,
        expires_at_ms: 1,
        level: 1,
    };
    let records = [
        Record::Override(entry("a", 5, None)),
        Record::ListEntry(crate::lists::tests::entry("k", None)),
        Record::Automatic(automatic),
        Record::Switch(crate::lists::tests::switch("api_key", None)),
    ];
    let keys = [
        "7285d9ec2a4b07c3ceda9b16ebac29c4",
        "7cfbca985346f2893baaba68686fa1d2",
        "069458fb2fd06da0f121ab1637cd3086",
        "fc58fe45f3d7035f3bd90f777253ed9f",
    ];
    assert_eq!(records.map(|record| record.key().to_string()), keys);
}

#[test]
fn overrides_are_dropped_at_their_end_and_their_texts_with_them() {
    let mut book = Book::default();
    for (value, end) in [("a", Some(10)), ("b", Some(20)), ("c", None)] {
        let entry = entry(value, 5, end);
        let key = Record::Override(entry.clone()).key();
        book.apply(RecordChange { revision: 1, key, record: Some(Record::Override(entry)) }).expect("valid");
    }
    assert_eq!(book.next_end(), Some(10));
    let swept = |now_ms| {
        book.sweep(now_ms);
        (book.len(), book.stamps.overrides)
    };
    assert_eq!([9, 10, 20, 30].map(swept), [(3, 3), (2, 4), (1, 5), (1, 5)]);
    assert_eq!(book.compiled().all.len(), 1);
}

#[test]
fn what_a_record_had_replaced_never_returns_after_its_end() {
    let mut book = Book::default();
    let put = |revision, end| {
        let record = Record::Override(entry("a", 5, end));
        RecordChange { revision, key: record.key(), record: Some(record) }
    };
    book.apply(put(2, Some(10))).expect("valid");
    let removal = |change: &RecordChange| change.revision == 2 && change.record.is_none();
    assert!(book.changes_since(0, 10).all(|change| removal(&change)));
    book.sweep(10);
    book.apply(put(1, None)).expect("valid");
    assert_eq!((book.len(), all(&book).iter().all(removal)), (0, true));
    book.apply(put(3, None)).expect("valid");
    assert_eq!(book.len(), 1);
}

proptest! {
    #[test]
    fn changes_in_any_order_and_number_leave_the_last_of_each(
        stated in prop::collection::vec((0..4_usize, prop::option::of(1_u32..9)), 0..20),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
    ) {
        let values = ["a", "b", "c", "d"];
        let changes: Vec<_> = stated.iter().enumerate()
            .map(|(at, (value, limit))| change(at as u64 + 1, values[*value], *limit)).collect();
        let mut expected = Book::default();
        changes.iter().cloned().for_each(|change| expected.apply(change).expect("valid"));
        let mut book = Book::default();
        if !changes.is_empty() {
            order.iter().for_each(|at| book.apply(at.get(&changes).clone()).expect("valid"));
        }
        // What another instance holds is restored over it.
        all(&expected).into_iter().for_each(|change| book.apply(change).expect("valid"));
        prop_assert_eq!(limits(&book), limits(&expected));
        prop_assert_eq!(all(&book), all(&expected));
    }
}
