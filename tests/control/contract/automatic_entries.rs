//! Deny list entries for banned clients.

use std::time::Duration;

use tokio::{join, time::sleep};
use tollgate::{
    control::{Action, Added, AuditEntry, AutomaticEntry, AutomaticMode, Control, bounds, compile_lists},
    descriptor::Entry,
};

use super::entry;
use crate::control::{automatic, now_ms};

promises!(
    an_automatic_entry_is_added_once_until_its_end,
    automatic_entries_are_lifted_and_exempt,
    automatic_entries_have_room_of_their_own,
);

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
    let mut page = control.audit(None, 2).await.expect("a reply");
    let mut all = page.clone();
    while let Some(last) = page.last() {
        page = control.audit(Some(&last.id), 2).await.expect("a reply");
        all.extend(page.clone());
    }
    assert_eq!(all, audit, "both logs are read as one");
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
