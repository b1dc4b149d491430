//! Lists, switches, automatic entries and the audit log of changes.

use tollgate::control::{Added, AuditEntry, AutomaticMode, Switch, SwitchMode, compile_lists};

use super::*;
use crate::control::automatic;

promises! {
    the_audit_log_has_every_change_in_order,
    lists_and_switches_are_set_replaced_and_removed,
    list_values_are_stored_as_they_are,
    expired_entries_make_room_for_others,
    an_automatic_entry_is_added_once_until_its_end,
    automatic_entries_are_lifted_and_exempt,
    automatic_entries_have_room_of_their_own,
}

async fn the_audit_log_has_every_change_in_order(control: &Control) {
    control.apply(draft(None, "# a")).await.expect("made");
    control.put_entry(entry("abc", None)).await.expect("put");
    control.put_switch(switch("k.v", SwitchMode::Off)).await.expect("put");
    control.record_audit("ada", Action::ResetCounter, "edge api_key=abc", "").await.expect("noted");
    assert!(control.remove_entry("abc", "bob").await.expect("removed"));
    assert!(control.remove_switch("edge", "k.v", "bob").await.expect("removed"));
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

async fn lists_and_switches_are_set_replaced_and_removed(control: &Control) {
    assert_eq!(control.runtime().await.expect("a reply").generation, 0);
    let end = Some(now_ms() + 3_600_000);
    control.put_entry(entry("a", None)).await.expect("put");
    control.put_entry(entry("b", end)).await.expect("put");
    let other = ListEntry { list: List::Allow, ..entry("a", end) };
    control.put_entry(other.clone()).await.expect("put");
    control.put_switch(switch("k", SwitchMode::Off)).await.expect("put");
    control.put_switch(switch("k", SwitchMode::Shadow)).await.expect("put");
    control.put_switch(switch("edge:k", SwitchMode::Off)).await.expect("put");
    let runtime = control.runtime().await.expect("a reply");
    assert_eq!(runtime.generation, 6);
    assert_eq!(runtime.entries.len(), 2);
    assert!(runtime.entries.contains(&other));
    let mut modes: Vec<_> = runtime.switches.iter().map(|set| (set.rule.as_str(), set.mode)).collect();
    modes.sort_by_key(|(rule, _)| *rule);
    assert_eq!(modes, [("edge:k", SwitchMode::Off), ("k", SwitchMode::Shadow)]);
    assert!(control.remove_entry("a", "bob").await.expect("removed"));
    assert!(!control.remove_entry("a", "bob").await.expect("a reply"));
    assert!(!control.remove_switch("other", "k", "bob").await.expect("a reply"));
    assert!(control.remove_switch("edge", "k", "bob").await.expect("removed"));
    let left = control.runtime().await.expect("a reply");
    assert_eq!((left.generation, left.entries.len(), left.switches.len()), (8, 1, 1));
}

async fn list_values_are_stored_as_they_are(control: &Control) {
    let long = "x".repeat(bounds::MAX_VALUE_BYTES);
    let values = ["*", "a,b=c", "", "ü\n\u{0}", r"\*", "\"", "10.0.0.0/8", &long];
    for (at, value) in values.into_iter().enumerate() {
        let descriptor = vec![ListPair::exact("k", value), ListPair::pattern("l", "*")];
        control.put_entry(ListEntry { descriptor, ..entry(&at.to_string(), None) }).await.expect("put");
    }
    let too_long = vec![ListPair::exact("k", format!("{long}x"))];
    let refused = control.put_entry(ListEntry { descriptor: too_long, ..entry("long", None) }).await;
    assert!(matches!(refused, Err(ControlError::TooLarge { .. })), "{refused:?}");
    let runtime = control.runtime().await.expect("a reply");
    let (lists, problems) = compile_lists(&runtime, 0);
    assert_eq!(problems, [""; 0]);
    let denying = |value: &str| {
        let entries = [Entry { key: "k", value }, Entry { key: "l", value: "any" }];
        lists.denying("edge", &entries, 0).map(|listing| listing.id.to_string())
    };
    for (at, value) in values.into_iter().enumerate() {
        assert_eq!(denying(value), Some(at.to_string()), "{value:?}");
    }
    for other in ["a", "10.1.2.3", "b", "ü"] {
        assert_eq!(denying(other), None, "{other}");
    }
}

async fn expired_entries_make_room_for_others(control: &Control) {
    for number in 0..bounds::MAX_ENTRIES - 1 {
        control.put_entry(entry(&number.to_string(), None)).await.expect("put");
    }
    control.put_entry(entry("short", Some(now_ms() + 3_600_000))).await.expect("put");
    let full = control.put_entry(entry("more", None)).await;
    assert!(matches!(full, Err(ControlError::TooMany { most: bounds::MAX_ENTRIES, .. })), "{full:?}");
    control.put_entry(entry("7", None)).await.expect("one that is there is replaced");
    let end = now_ms() + 200;
    control.put_entry(entry("short", Some(end))).await.expect("replaced");
    while now_ms() <= end {
        sleep(Duration::from_millis(50)).await;
    }
    control.put_entry(entry("more", None)).await.expect("put");
    let entries = control.runtime().await.expect("a reply").entries;
    assert_eq!(entries.len(), bounds::MAX_ENTRIES);
    assert!(entries.iter().all(|entry| entry.id != "short"));
}

const MINUTE: Duration = Duration::from_secs(60);

async fn add(control: &Control, entry: AutomaticEntry) -> Added {
    control.add_automatic(vec![entry]).await.expect("a reply")[0]
}

/// The active automatic entry of a value.
async fn active(control: &Control, value: &str) -> Option<AutomaticEntry> {
    let runtime = control.runtime().await.expect("a reply");
    runtime.automatic.into_iter().find(|entry| entry.descriptor[0].value == value)
}

async fn an_automatic_entry_is_added_once_until_its_end(control: &Control) {
    control.put_entry(entry("abc", None)).await.expect("put");
    let before = control.runtime().await.expect("a reply");
    let of = |value: &str| automatic("api_key", value, Duration::from_millis(300));
    let first = of("abc");
    let (one, other) = join!(add(control, first.clone()), add(control, of("abc")));
    assert!(matches!((one, other), (Added::Listed, Added::Known) | (Added::Known, Added::Listed)));
    let listed = active(control, "abc").await.expect("just added");
    assert_eq!((&listed.id, &*listed.rule, listed.level), (&first.id, "api_key", 3));
    assert!(listed.expires_at_ms.abs_diff(first.expires_at_ms) < 60_000);
    while add(control, of("abc")).await == Added::Known {
        sleep(Duration::from_millis(5)).await;
    }
    assert!(now_ms() >= listed.expires_at_ms, "it has ended before another one is listed");
    let runtime = control.runtime().await.expect("a reply");
    assert_eq!((runtime.entries, runtime.generation), (before.entries, before.generation));
    let audit = control.audit(None, 100).await.expect("a reply");
    let reported: Vec<_> =
        audit.iter().map(|entry| (&*entry.author, &*entry.subject, &*entry.comment)).collect();
    let automatic = ("tollgate", "deny web api_key=\"abc\"", "rule api_key: ban 3 in a row");
    assert_eq!(reported, [automatic, automatic, ("ada", "deny edge api_key=\"abc\"", "abuse")]);
    assert_eq!(paged_audit(control).await, audit, "both logs are read as one");
}

async fn automatic_entries_are_lifted_and_exempt(control: &Control) {
    let listed = automatic("api_key", "abc", MINUTE);
    assert_eq!(add(control, listed.clone()).await, Added::Listed);
    let entries = [Entry { key: "api_key", value: "abc" }];
    let denies = async || {
        let (lists, problems) = compile_lists(&control.runtime().await.expect("a reply"), now_ms());
        assert_eq!(problems, Vec::<String>::new());
        lists.denying("web", &entries, now_ms()).is_some()
    };
    assert!(denies().await);
    assert_eq!(control.automatic(&listed.id).await, Ok(Some(listed.clone())));

    assert!(control.lift_automatic(&listed, "ada").await.expect("a reply"));
    assert!(!control.lift_automatic(&listed, "ada").await.expect("a reply"));
    assert_eq!((active(control, "abc").await, denies().await), (None, false));
    assert_eq!(add(control, listed.clone()).await, Added::Listed);
    let end = now_ms() + 60_000;
    let exempt = control.exempt_automatic(listed.clone(), "ada", "a partner", end).await;
    let exempt = exempt.expect("a reply").expect("there");
    assert_eq!((exempt.mode, exempt.expires_at_ms), (AutomaticMode::Exempt, end));
    assert_eq!(
        active(control, "abc").await.map(|entry| (entry.mode, entry.author)),
        Some((AutomaticMode::Exempt, "ada".to_owned()))
    );
    assert!(!denies().await, "an exemption denies nothing");
    assert_eq!(add(control, listed.clone()).await, Added::Known);
    // Entries of one millisecond may be in any order.
    let audit = control.audit(None, 2).await.expect("a reply");
    let is_audited = |entry: &AuditEntry| {
        (entry.action, &*entry.author, &*entry.comment)
            == (Action::RemoveEntry, "ada", "lifted and exempt: a partner")
    };
    assert!(audit.iter().any(is_audited), "{audit:?}");
    control.lift_automatic_of(&listed.ban().id, "ada").await.expect("a reply");
    assert_eq!(active(control, "abc").await, Some(exempt), "the end of a ban ends no exemption");
    let unknown = automatic("api_key", "unknown", MINUTE);
    assert_eq!(control.exempt_automatic(unknown, "ada", "", end).await, Ok(None));
    let other = automatic("api_key", "other", MINUTE);
    assert_eq!(add(control, other.clone()).await, Added::Listed);
    control.lift_automatic_of(&other.ban().id, "ada").await.expect("a reply");
    assert_eq!(active(control, "other").await, None, "the end of a ban ends its entry");
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
    control.put_entry(entry("abc", None)).await.expect("an operator's entry has room");
    let runtime = control.runtime().await.expect("a reply");
    assert_eq!((runtime.automatic.len(), runtime.entries.len()), (bounds::MAX_AUTOMATIC_ENTRIES, 1));
}
