//! Lists, switches and the audit log of changes.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{
    control::{
        Action, Control, ControlError, List, ListEntry, ListPair, Switch, SwitchMode, bounds, compile_lists,
    },
    descriptor::Entry,
};

use super::entry;
use crate::control::{draft, now_ms};

promises!(
    the_audit_log_has_every_change_in_order,
    lists_and_switches_are_set_replaced_and_removed,
    list_values_are_stored_as_they_are,
    expired_entries_make_room_for_others,
);

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
    let mut page = control.audit(None, 2).await.expect("a reply");
    let mut all = page.clone();
    while let Some(last) = page.last() {
        page = control.audit(Some(&last.id), 2).await.expect("a reply");
        all.extend(page.clone());
    }
    assert_eq!(all, audit);
    assert_eq!(control.audit(Some("nonsense"), 2).await, Ok(Vec::new()));
}

fn switch(rule: &str, mode: SwitchMode) -> Switch {
    Switch {
        domain: "edge".into(),
        rule: rule.into(),
        mode,
        enforce_percent: None,
        ramp: None,
        reason: "in doubt".into(),
        author: "bob".into(),
        created_at_ms: now_ms(),
        expires_at_ms: None,
    }
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
        lists.denying("edge", &entries, 0).map(|listing| listing.id().to_owned())
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
