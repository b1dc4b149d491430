//! Deny list entries of abuse rules.

use std::time::Duration;

use tokio::{join, time::sleep};
use tollgate::{
    control::{
        Action, Added, AuditEntry, AutomaticEntry, AutomaticMode, Control, ListPair, NewEntry, bounds,
        compile_lists,
    },
    descriptor::Entry,
};

use super::entry;
use crate::control::now_ms;

promises!(
    an_automatic_entry_is_added_once_and_lasts_longer_each_time,
    automatic_entries_are_lifted_and_exempt,
    automatic_entries_have_room_of_their_own,
);

/// An automatic entry for a value, which lasts 100 ms at first and 400 ms at most.
fn automatic(mode: AutomaticMode, value: &str) -> NewEntry {
    let durations = [100, 400, 3_600_000].map(Duration::from_millis);
    let descriptor = vec![ListPair::exact("api_key", value)];
    NewEntry::new(mode, "edge".into(), descriptor, "scrapers".into(), "60 denied/s for 30s".into(), durations)
}

async fn add(control: &Control, mode: AutomaticMode, value: &str) -> Added {
    control.add_automatic(vec![automatic(mode, value)]).await.expect("a reply")[0]
}

/// The active automatic entry of a value.
async fn active(control: &Control, value: &str) -> Option<AutomaticEntry> {
    let runtime = control.runtime().await.expect("a reply");
    runtime.automatic.into_iter().find(|entry| entry.descriptor[0].value == value)
}

/// Adds the entry of a value as soon as its former one has ended.
async fn add_again(control: &Control, value: &str) -> AutomaticEntry {
    while add(control, AutomaticMode::Enforce, value).await == Added::Known {
        sleep(Duration::from_millis(5)).await;
    }
    active(control, value).await.expect("just added")
}

async fn an_automatic_entry_is_added_once_and_lasts_longer_each_time(control: &Control) {
    control.put_entry(entry("abc", None)).await.expect("put");
    let before = control.runtime().await.expect("a reply");
    let enforce = AutomaticMode::Enforce;
    let (one, other) = join!(add(control, enforce, "abc"), add(control, enforce, "abc"));
    assert!(matches!((one, other), (Added::Listed, Added::Known) | (Added::Known, Added::Listed)));
    for (offences, lasts) in [(2, 200), (3, 400), (4, 400)] {
        let again = add_again(control, "abc").await;
        assert_eq!((again.offences, again.expires_at_ms - again.created_at_ms), (offences, lasts));
        assert!(now_ms().abs_diff(again.created_at_ms) < 60_000);
    }
    let runtime = control.runtime().await.expect("a reply");
    assert_eq!((runtime.entries, runtime.generation), (before.entries, before.generation));
    let audit = control.audit(None, 100).await.expect("a reply");
    let reported: Vec<_> =
        audit.iter().map(|entry| (&*entry.author, &*entry.subject, &*entry.comment)).collect();
    let automatic = ("tollgate", "deny edge api_key=\"abc\"", "abuse rule scrapers: 60 denied/s for 30s");
    assert_eq!(
        reported,
        [automatic, automatic, automatic, automatic, ("ada", "deny edge api_key=\"abc\"", "abuse")]
    );
    let mut page = control.audit(None, 2).await.expect("a reply");
    let mut all = page.clone();
    while let Some(last) = page.last() {
        page = control.audit(Some(&last.id), 2).await.expect("a reply");
        all.extend(page.clone());
    }
    assert_eq!(all, audit, "both logs are read as one");
}

async fn automatic_entries_are_lifted_and_exempt(control: &Control) {
    let durable = |mode| NewEntry {
        duration: Duration::from_secs(60),
        max_duration: Duration::from_secs(60),
        ..automatic(mode, "abc")
    };
    let put = async |mode| control.add_automatic(vec![durable(mode)]).await.expect("a reply")[0];
    assert_eq!(put(AutomaticMode::DryRun).await, Added::Listed);
    assert_eq!(put(AutomaticMode::DryRun).await, Added::Known);
    let (dry, _) = compile_lists(&control.runtime().await.expect("a reply"), now_ms());
    let entries = [Entry { key: "api_key", value: "abc" }];
    assert!(dry.denying("edge", &entries, now_ms()).is_none(), "a dry run denies nothing");
    assert_eq!(put(AutomaticMode::Enforce).await, Added::Listed, "in place of a dry run");
    let runtime = control.runtime().await.expect("a reply");
    assert_eq!((runtime.automatic.len(), runtime.automatic[0].offences), (1, 1));
    let (enforced, problems) = compile_lists(&runtime, now_ms());
    assert!(enforced.denying("edge", &entries, now_ms()).is_some() && problems.is_empty());

    let id = durable(AutomaticMode::Enforce).entry.id;
    assert!(control.lift_automatic(&id, "ada").await.expect("a reply"));
    assert!(!control.lift_automatic(&id, "ada").await.expect("a reply"));
    assert_eq!(active(control, "abc").await, None);
    assert_eq!(put(AutomaticMode::Enforce).await, Added::Listed);
    assert_eq!(active(control, "abc").await.expect("there").offences, 1, "a lift forgets");
    let end = now_ms() + 60_000;
    let exempt =
        control.exempt_automatic(&id, "ada", "a partner", end).await.expect("a reply").expect("there");
    assert_eq!((exempt.mode, exempt.expires_at_ms), (AutomaticMode::Exempt, end));
    assert_eq!(
        active(control, "abc").await.map(|entry| (entry.mode, entry.author)),
        Some((AutomaticMode::Exempt, "ada".to_owned()))
    );
    assert_eq!(put(AutomaticMode::Enforce).await, Added::Known);
    // Entries of one millisecond may be in any order.
    let audit = control.audit(None, 2).await.expect("a reply");
    let is_audited = |entry: &AuditEntry| {
        (entry.action, &*entry.author, &*entry.comment)
            == (Action::RemoveEntry, "ada", "lifted and exempt: a partner")
    };
    assert!(audit.iter().any(is_audited), "{audit:?}");
    assert_eq!(control.exempt_automatic("unknown", "ada", "", end).await, Ok(None));
}

async fn automatic_entries_have_room_of_their_own(control: &Control) {
    let many = |mode: AutomaticMode, name: &str, count: usize| -> Vec<NewEntry> {
        let one = |at| NewEntry {
            duration: Duration::from_secs(600),
            max_duration: Duration::from_secs(600),
            ..automatic(mode, &format!("{name}{at}"))
        };
        (0..count).map(one).collect()
    };
    let listed = |results: Vec<Added>| results.into_iter().filter(|result| *result == Added::Listed).count();
    let dry =
        control.add_automatic(many(AutomaticMode::DryRun, "dry", bounds::MAX_DRY_RUN_ENTRIES + 5)).await;
    assert_eq!(listed(dry.expect("a reply")), bounds::MAX_DRY_RUN_ENTRIES);
    let room = bounds::MAX_AUTOMATIC_ENTRIES - bounds::MAX_DRY_RUN_ENTRIES;
    let results =
        control.add_automatic(many(AutomaticMode::Enforce, "own", room + 5)).await.expect("a reply");
    assert_eq!(results.iter().rev().take(5).collect::<Vec<_>>(), [&Added::Full; 5]);
    assert_eq!(listed(results), room);
    control.put_entry(entry("abc", None)).await.expect("an operator's entry has room");
    let runtime = control.runtime().await.expect("a reply");
    assert_eq!((runtime.automatic.len(), runtime.entries.len()), (bounds::MAX_AUTOMATIC_ENTRIES, 1));
}
