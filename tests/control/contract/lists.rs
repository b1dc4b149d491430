//! Lists, switches, automatic entries and the audit log of changes.

use futures_util::future::join_all;
use tollgate::control::{
    Added, AuditEntry, AutomaticMode, Record, RecordSelection, Runtime, Switch, SwitchMode, compile_lists,
};

use super::*;
use crate::control::automatic;

promises! {
    the_audit_log_has_every_change_in_order,
    lists_and_switches_are_set_replaced_and_removed,
    a_record_is_changed_only_on_its_base,
    list_values_are_stored_as_they_are,
    expired_entries_make_room_for_others,
    an_automatic_entry_is_added_once_until_its_end,
    automatic_entries_are_lifted_and_exempt,
    automatic_entries_have_room_of_their_own,
}

async fn the_audit_log_has_every_change_in_order(control: &Control) {
    control.apply(draft(None, "# a")).await.expect("made");
    put_entry(control, entry("abc", None)).await.expect("put");
    put(control, Record::Switch(switch("k.v", SwitchMode::Off))).await.expect("put");
    control.record_audit("ada", Action::ResetCounter, "edge api_key=abc", "").await.expect("noted");
    assert!(remove(control, Record::ListEntry(entry("abc", None)), "bob").await.expect("removed"));
    assert!(remove(control, Record::Switch(switch("k.v", SwitchMode::Off)), "bob").await.expect("removed"));
    let audit = control.audit(None, 100).await.expect("a reply");
    let reported: Vec<_> =
        audit.iter().map(|entry| (entry.author.as_str(), entry.action, entry.subject.as_str())).collect();
    assert_eq!(
        reported,
        [
            ("bob", Action::RemoveSwitch, "off edge k.v"),
            ("bob", Action::RemoveEntry, "deny edge api_key=\"abc\""),
            ("ada", Action::ResetCounter, "edge api_key=abc"),
            ("bob", Action::SetSwitch, "off edge k.v"),
            ("ada", Action::AddEntry, "deny edge api_key=\"abc\""),
            ("ada", Action::Apply, "version 1"),
        ]
    );
    assert_eq!(audit[4].comment, "abuse");
    assert!(now_ms().abs_diff(audit[0].at_ms) < 60_000);
    assert_eq!(paged_audit(control).await, audit);
    assert_eq!(control.audit(Some("nonsense"), 2).await, Ok(Vec::new()));
}

fn switch(rule: &str, mode: SwitchMode) -> Switch {
    let switch = switched("edge", rule, mode);
    Switch { reason: "in doubt".into(), author: "bob".into(), created_at_ms: now_ms(), ..switch }
}

/// Waits until the change after a revision is active, and returns its revision.
async fn later(control: &Control, revision: u64) -> u64 {
    held(control, |runtime| runtime.generation > revision).await.generation
}

async fn lists_and_switches_are_set_replaced_and_removed(control: &Control) {
    assert_eq!(held(control, |_| true).await.generation, 0);
    let end = Some(now_ms() + 3_600_000);
    let other = ListEntry { reason: "other".into(), ..entry("a", end) };
    let mut revision = 0;
    for put in [entry("a", None), entry("b", end), other.clone()] {
        put_entry(control, put).await.expect("put");
        revision = later(control, revision).await;
    }
    for (rule, mode) in [("k", SwitchMode::Off), ("k", SwitchMode::Shadow), ("edge:k", SwitchMode::Off)] {
        put(control, Record::Switch(switch(rule, mode))).await.expect("put");
        revision = later(control, revision).await;
    }
    let runtime = control.runtime().expect("loaded");
    assert_eq!(runtime.entries.len(), 2);
    assert!(runtime.entries.contains(&other));
    let mut modes: Vec<_> = runtime.switches.iter().map(|set| (set.rule.as_str(), set.mode)).collect();
    modes.sort_by_key(|(rule, _)| *rule);
    assert_eq!(modes, [("edge:k", SwitchMode::Off), ("k", SwitchMode::Shadow)]);
    assert!(remove(control, Record::ListEntry(entry("a", None)), "bob").await.expect("removed"));
    let removed = later(control, revision).await;
    assert!(!remove(control, Record::ListEntry(entry("a", None)), "bob").await.expect("a reply"));
    assert!(
        !remove(control, Record::Switch(switch("other", SwitchMode::Off)), "bob").await.expect("a reply")
    );
    assert_eq!(control.runtime().expect("loaded").generation, removed, "nothing has changed");
    assert!(remove(control, Record::Switch(switch("k", SwitchMode::Off)), "bob").await.expect("removed"));
    later(control, removed).await;
    let left = control.runtime().expect("loaded");
    assert_eq!((left.entries.len(), left.switches.len()), (1, 1));
}

async fn a_record_is_changed_only_on_its_base(control: &Control) {
    let entry = entry("a", None);
    let record = |reason: &str| Record::ListEntry(ListEntry { reason: reason.into(), ..entry.clone() });
    let put_at = async |reason: &str, base: u64| {
        control.put_records(vec![(record(reason), Some(base))]).await.map(|views| views[0].revision)
    };
    let first = put_at("first", 0).await.expect("there was none");
    assert_eq!(later(control, 0).await, first);
    let second = put_at("second", first).await.expect("it was that one");
    later(control, first).await;
    for base in [0, first] {
        let Err(ControlError::StaleRecord { current: Some(current), .. }) = put_at("late", base).await else {
            panic!("it was replaced")
        };
        assert_eq!((&current["revision"], &current["reason"]), (&second.into(), &"second".into()));
    }
    let key = record("").key();
    let removed = control.remove_record(key, Some(first), "ada", false).await;
    assert!(matches!(removed, Err(ControlError::StaleRecord { .. })), "{removed:?}");
    let other = (Record::Switch(switch("k", SwitchMode::Off)), None);
    let together = control.put_records(vec![other, (record("late"), Some(first))]).await;
    assert!(together.is_err() && control.runtime().expect("loaded").switches.is_empty(), "all or none");
    let tried = control.remove_record(key, Some(second), "ada", true).await.expect("a reply");
    assert_eq!(
        (tried, control.record(key).await.expect("a reply").is_some()),
        (Some(record("second")), true)
    );
    assert!(control.remove_record(key, Some(second), "ada", false).await.expect("removed").is_some());
    later(control, second).await;
    assert!(matches!(put_at("late", second).await, Err(ControlError::StaleRecord { current: None, .. })));
}

async fn list_values_are_stored_as_they_are(control: &Control) {
    let long = "x".repeat(bounds::MAX_VALUE_BYTES);
    let values = ["*", "a,b=c", "", "ü\n\u{0}", r"\*", "\"", "10.0.0.0/8", &long];
    let listed = |at: usize, value: &str| ListEntry {
        descriptor: vec![ListPair::exact("k", value), ListPair::pattern("l", "*")],
        ..entry(&at.to_string(), None)
    };
    for (at, value) in values.into_iter().enumerate() {
        put_entry(control, listed(at, value)).await.expect("put");
    }
    let too_long = vec![ListPair::exact("k", format!("{long}x"))];
    let refused = put_entry(control, ListEntry { descriptor: too_long, ..entry("long", None) }).await;
    assert!(matches!(refused, Err(ControlError::TooLarge { .. })), "{refused:?}");
    let runtime = held(control, |runtime| runtime.entries.len() == values.len()).await;
    let (lists, problems) = compile_lists(&runtime, 0);
    assert_eq!(problems, [""; 0]);
    let denying = |value: &str| {
        let entries = [Entry { key: "k", value }, Entry { key: "l", value: "any" }];
        lists.denying("edge", &entries, 0).map(|listing| listing.id.to_string())
    };
    for (at, value) in values.into_iter().enumerate() {
        assert_eq!(denying(value), Some(listed(at, value).record_key().to_string()), "{value:?}");
    }
    for other in ["a", "10.1.2.3", "b", "ü"] {
        assert_eq!(denying(other), None, "{other}");
    }
}

async fn expired_entries_make_room_for_others(control: &Control) {
    let puts =
        (0..bounds::MAX_ENTRIES - 1).map(|number| put_entry(control, entry(&number.to_string(), None)));
    join_all(puts).await.into_iter().for_each(|put| drop(put.expect("put")));
    put_entry(control, entry("short", Some(now_ms() + 3_600_000))).await.expect("put");
    held(control, |runtime| runtime.entries.len() == bounds::MAX_ENTRIES).await;
    let full = put_entry(control, entry("more", None)).await;
    assert!(matches!(full, Err(ControlError::TooMany { most: bounds::MAX_ENTRIES, .. })), "{full:?}");
    put_entry(control, entry("7", None)).await.expect("one that is there is replaced");
    let end = now_ms() + 200;
    put_entry(control, entry("short", Some(end))).await.expect("replaced");
    held(control, |runtime| runtime.entries.iter().all(|entry| entry.descriptor[0].value != "short")).await;
    assert!(now_ms() >= end, "it has ended before it makes room");
    put_entry(control, entry("more", None)).await.expect("put");
    let full = |runtime: &Runtime| {
        let is_there = |value: &str| runtime.entries.iter().any(|entry| entry.descriptor[0].value == value);
        runtime.entries.len() == bounds::MAX_ENTRIES && is_there("more") && !is_there("short")
    };
    held(control, full).await;
}

const MINUTE: Duration = Duration::from_secs(60);

async fn add(control: &Control, entry: AutomaticEntry) -> Added {
    control.add_automatic(vec![entry]).await.expect("a reply")[0]
}

/// The active automatic entry of a value.
fn active(control: &Control, value: &str) -> Option<AutomaticEntry> {
    control
        .runtime()
        .unwrap_or_default()
        .automatic
        .into_iter()
        .find(|entry| entry.descriptor[0].value == value)
}

/// Waits until the active automatic entry of a value is right.
async fn becomes(control: &Control, value: &str, is_right: impl Fn(&Option<AutomaticEntry>) -> bool) {
    read_until(async || active(control, value), is_right).await;
}

/// The entries and the revision of operators.
fn of_operators(control: &Control) -> (Vec<ListEntry>, u64) {
    (control.runtime().unwrap_or_default().entries, control.records(&RecordSelection::default()).revision)
}

async fn an_automatic_entry_is_added_once_until_its_end(control: &Control) {
    put_entry(control, entry("abc", None)).await.expect("put");
    held(control, |runtime| runtime.entries.len() == 1).await;
    let before = of_operators(control);
    let long = automatic("api_key", "abc", MINUTE);
    let (one, other) = join!(add(control, long.clone()), add(control, automatic("api_key", "abc", MINUTE)));
    assert!(matches!((one, other), (Added::Listed, Added::Known) | (Added::Known, Added::Listed)));
    let listed = found("it is not active", async || active(control, "abc")).await;
    assert_eq!((listed.ban().id, &*listed.rule, listed.level), (long.ban().id, "api_key", 3));
    assert!(listed.expires_at_ms.abs_diff(long.expires_at_ms) < 60_000);
    let of = || automatic("api_key", "short", Duration::from_millis(300));
    let short = of();
    assert_eq!(add(control, short.clone()).await, Added::Listed);
    while add(control, of()).await == Added::Known {
        sleep(Duration::from_millis(5)).await;
    }
    assert!(now_ms() >= short.expires_at_ms, "it has ended before another one is listed");
    assert_eq!(of_operators(control), before, "operators' records are apart");
    let audit = control.audit(None, 100).await.expect("a reply");
    let reported: Vec<_> =
        audit.iter().map(|entry| (&*entry.author, &*entry.subject, &*entry.comment)).collect();
    let comment = "rule api_key: ban 3 in a row";
    let [long, short] = ["abc", "short"].map(|value| format!("deny web api_key=\"{value}\""));
    let short = ("tollgate", &*short, comment);
    let own = ("ada", "deny edge api_key=\"abc\"", "abuse");
    assert_eq!(reported, [short, short, ("tollgate", &*long, comment), own]);
    assert_eq!(paged_audit(control).await, audit, "both logs are read as one");
}

async fn automatic_entries_are_lifted_and_exempt(control: &Control) {
    let listed = automatic("api_key", "abc", MINUTE);
    assert_eq!(add(control, listed.clone()).await, Added::Listed);
    let entries = [Entry { key: "api_key", value: "abc" }];
    let denies = || {
        let (lists, problems) = compile_lists(&control.runtime().unwrap_or_default(), now_ms());
        assert_eq!(problems, Vec::<String>::new());
        lists.denying("web", &entries, now_ms()).is_some()
    };
    becomes(control, "abc", Option::is_some).await;
    assert!(denies());
    let record = Record::Automatic(listed.clone());
    let found = control.record(record.key()).await.expect("a reply").expect("there");
    assert_eq!(found.record, record);

    assert!(remove(control, record.clone(), "ada").await.expect("a reply"));
    assert!(!remove(control, record, "ada").await.expect("a reply"));
    becomes(control, "abc", Option::is_none).await;
    assert!(!denies());
    assert_eq!(add(control, listed.clone()).await, Added::Listed);
    let end = now_ms() + 60_000;
    let exempt = control.exempt_automatic(listed.clone(), "ada", "a partner", end).await;
    let Record::Automatic(exempt) = exempt.expect("a reply").expect("there").record else {
        panic!("another kind")
    };
    assert_eq!((exempt.mode, exempt.expires_at_ms), (AutomaticMode::Exempt, end));
    let is_exempt = |entry: &AutomaticEntry| entry.mode == AutomaticMode::Exempt && entry.author == "ada";
    becomes(control, "abc", |found| found.as_ref().is_some_and(is_exempt)).await;
    assert!(!denies(), "an exemption denies nothing");
    assert_eq!(add(control, listed.clone()).await, Added::Known);
    // Entries of one millisecond may be in any order.
    let audit = control.audit(None, 2).await.expect("a reply");
    let is_audited = |entry: &AuditEntry| {
        (entry.action, &*entry.author, &*entry.comment)
            == (Action::RemoveEntry, "ada", "lifted and exempt: a partner")
    };
    assert!(audit.iter().any(is_audited), "{audit:?}");
    control.lift_automatic_of(&listed.ban().id, "ada").await.expect("a reply");
    assert_eq!(active(control, "abc"), Some(exempt), "the end of a ban ends no exemption");
    let unknown = automatic("api_key", "unknown", MINUTE);
    assert_eq!(control.exempt_automatic(unknown, "ada", "", end).await, Ok(None));
    let other = automatic("api_key", "other", MINUTE);
    assert_eq!(add(control, other.clone()).await, Added::Listed);
    becomes(control, "other", Option::is_some).await;
    control.lift_automatic_of(&other.ban().id, "ada").await.expect("a reply");
    becomes(control, "other", Option::is_none).await;
}

async fn automatic_entries_have_room_of_their_own(control: &Control) {
    let many = |name: &str, count: usize| -> Vec<AutomaticEntry> {
        (0..count).map(|at| automatic("api_key", &format!("{name}{at}"), 10 * MINUTE)).collect()
    };
    let mut results = Vec::new();
    for some in many("own", bounds::MAX_AUTOMATIC_ENTRIES + 5).chunks(250) {
        results.extend(control.add_automatic(some.to_vec()).await.expect("a reply"));
    }
    let (listed, full) = results.split_at(bounds::MAX_AUTOMATIC_ENTRIES);
    assert!(listed.iter().all(|result| *result == Added::Listed));
    assert_eq!(full, [Added::Full; 5]);
    put_entry(control, entry("abc", None)).await.expect("an operator's entry has room");
    let runtime = held(control, |runtime| !runtime.entries.is_empty()).await;
    assert_eq!(runtime.entries.len(), 1);
    held(control, |runtime| runtime.automatic.len() == bounds::MAX_AUTOMATIC_ENTRIES).await;
}
