//! The contract of every control-plane store, run against each of them.

use std::time::Duration;

use tokio::{join, time::sleep};
use tollgate::{
    control::{
        Action, Added, AuditEntry, AutomaticEntry, AutomaticMode, BanCounts, BanFilter, BanRemoval, Control,
        ControlError, Draft, Files, List, ListEntry, ListPair, ListedBan, ListedBanMode, NewEntry, Pair,
        RulesSource, Switch, SwitchMode, bounds, compile_lists,
    },
    descriptor::Entry,
};

use super::{draft, files, now_ms, redis_control};
use crate::support::{
    proxy::{Direction, Proxy, Way},
    redis::Redis,
};

/// Runs one promise against every store.
macro_rules! promises {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $name() {
                let directory = tempfile::tempdir().expect("a directory");
                let file = directory.path().join("rules.json");
                // Some promises change much, which is written each time.
                let file = (!stringify!($name).contains("room")).then_some(file);
                super::$name(&super::Control::memory(super::RulesSource::Memory, file).expect("usable")).await;
            })+
        }
        mod redis {
            $(#[tokio::test] async fn $name() {
                let redis = super::Redis::start();
                super::$name(&super::redis_control(&redis.url(), "")).await;
            })+
        }
        mod sentinel {
            $(#[tokio::test] async fn $name() {
                let url = crate::support::sentinel::shared().url();
                super::$name(&super::redis_control(&url, concat!("control:", stringify!($name), ":"))).await;
            })+
        }
        mod cluster {
            $(#[tokio::test] async fn $name() {
                let url = crate::support::cluster::shared().url();
                super::$name(&super::redis_control(&url, concat!("control:", stringify!($name), ":"))).await;
            })+
        }
    };
}

promises!(
    versions_count_up_and_never_change,
    of_two_racing_writers_one_wins_and_the_other_changes_nothing,
    a_rollback_is_a_version_of_its_own,
    too_large_versions_are_refused_and_the_oldest_versions_make_room,
    the_audit_log_has_every_change_in_order,
    lists_and_switches_are_set_replaced_and_removed,
    list_values_are_stored_as_they_are,
    bans_are_listed_by_their_ends_until_they_end_or_are_removed,
    of_too_many_bans_watched_ones_and_then_the_first_to_end_make_room,
    the_removal_of_a_ban_is_audited,
    expired_entries_make_room_for_others,
    the_oldest_files_make_room_for_others,
    an_automatic_entry_is_added_once_and_lasts_longer_each_time,
    automatic_entries_are_lifted_and_exempt,
    automatic_entries_have_room_of_their_own,
);

fn entry(id: &str, expires_at_ms: Option<u64>) -> ListEntry {
    ListEntry {
        id: id.into(),
        list: List::Deny,
        domain: "edge".into(),
        descriptor: vec![ListPair::exact("api_key", id)],
        reason: "abuse".into(),
        author: "ada".into(),
        created_at_ms: now_ms(),
        expires_at_ms,
    }
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

async fn versions_count_up_and_never_change(control: &Control) {
    assert_eq!(control.current().await, Ok(None));
    assert_eq!(control.versions(None, 10).await, Ok(Vec::new()));
    let mut made = Vec::new();
    for number in 1..=5_u64 {
        let based_on = (number > 1).then(|| number - 1);
        let version = control.apply(draft(based_on, &format!("# {number}"))).await.expect("made");
        assert_eq!((version.number, version.based_on, version.author.as_str()), (number, based_on, "ada"));
        assert!(now_ms().abs_diff(version.created_at_ms) < 60_000);
        made.push(version);
        assert_eq!(control.current().await, Ok(Some(number)));
        for earlier in &made {
            let (version, found) = control.version(earlier.number).await.expect("a reply").expect("there");
            assert_eq!(version, *earlier);
            assert_eq!(found, files(&format!("# {}", earlier.number)));
        }
    }
    made.reverse();
    assert_eq!(control.versions(None, 10).await, Ok(made.clone()));
    assert_eq!(control.versions(Some(4), 2).await, Ok(made[2..4].to_vec()));
    assert_eq!(control.versions(Some(1), 2).await, Ok(Vec::new()));
    assert_eq!(control.version(6).await, Ok(None));
    assert_ne!(made[0].fingerprint, made[1].fingerprint);
}

async fn of_two_racing_writers_one_wins_and_the_other_changes_nothing(control: &Control) {
    let mut current = control.apply(draft(None, "# first")).await.expect("made");
    for round in 0..200 {
        let of = |author: &str| Draft {
            author: author.into(),
            ..draft(Some(current.number), &format!("# {author} {round}"))
        };
        let (ada, bob) = join!(control.apply(of("ada")), control.apply(of("bob")));
        let (won, lost) = match (ada, bob) {
            (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
            other => panic!("{other:?}"),
        };
        assert_eq!(won.number, current.number + 1);
        assert_eq!(lost, ControlError::Stale { current: Box::new(won.clone()) });
        let (found, texts) = control.version(won.number).await.expect("a reply").expect("there");
        assert_eq!((&found, texts), (&won, files(&format!("# {} {round}", won.author))));
        assert_eq!(control.current().await, Ok(Some(won.number)));
        assert_eq!(control.version(won.number + 1).await, Ok(None));
        current = won;
    }
    assert_eq!(control.audit(None, 1_000).await.expect("a reply").len(), 201);
}

async fn a_rollback_is_a_version_of_its_own(control: &Control) {
    let first = control.apply(draft(None, "# a")).await.expect("made");
    control.apply(draft(Some(1), "# b")).await.expect("made");
    let back = Draft { rollback_to: Some(1), ..draft(Some(2), "# a") };
    let third = control.apply(back.clone()).await.expect("made");
    assert_eq!((third.number, third.based_on, third.rollback_to), (3, Some(2), Some(1)));
    assert_eq!(third.fingerprint, first.fingerprint);
    assert_eq!(control.current().await, Ok(Some(3)));
    assert!(matches!(control.apply(back).await, Err(ControlError::Stale { current }) if *current == third));
    let audit = control.audit(None, 1).await.expect("a reply");
    assert_eq!(audit[0].action, Action::Rollback);
}

async fn too_large_versions_are_refused_and_the_oldest_versions_make_room(control: &Control) {
    let large = Files::from([("a.yaml".into(), "#".repeat(bounds::MAX_VERSION_BYTES))]);
    let refused = control.apply(Draft { files: large, ..draft(None, "") }).await;
    assert!(matches!(refused, Err(ControlError::TooLarge { .. })));
    let fits = "#".repeat(bounds::MAX_VERSION_BYTES - "rules.yaml".len());
    let long = Draft { comment: "é".repeat(1_000), ..draft(None, &fits) };
    let made = control.apply(long).await.expect("made");
    assert_eq!(made.comment, "é".repeat(bounds::MAX_TEXT_BYTES / 2));
    assert_eq!(control.version(1).await.expect("a reply").expect("there").1, files(&fits));

    for number in 1..bounds::MAX_VERSIONS + 2 {
        control.apply(draft(Some(number), "# small")).await.expect("made");
    }
    let most = usize::try_from(bounds::MAX_VERSIONS).expect("in range");
    let kept = control.versions(None, 2 * most).await.expect("a reply");
    assert_eq!((kept.len(), kept[0].number, kept[most - 1].number), (most, bounds::MAX_VERSIONS + 2, 3));
    assert_eq!(control.version(2).await, Ok(None));
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
    let mut page = control.audit(None, 2).await.expect("a reply");
    let mut all = page.clone();
    while let Some(last) = page.last() {
        page = control.audit(Some(&last.id), 2).await.expect("a reply");
        all.extend(page.clone());
    }
    assert_eq!(all, audit);
    assert_eq!(control.audit(Some("nonsense"), 2).await, Ok(Vec::new()));
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

fn listed_ban(number: u64, mode: ListedBanMode, ends_at_ms: u64) -> ListedBan {
    ListedBan {
        id: format!("{number:016x}"),
        domain: if number.is_multiple_of(2) { "even".into() } else { "odd".into() },
        rule: "api_key".into(),
        descriptor: vec![Pair { key: "api_key".into(), value: number.to_string() }],
        is_truncated: false,
        level: 1,
        mode,
        began_at_ms: 1,
        ends_at_ms,
        instance: String::new(),
    }
}

/// The ids of all bans that pass a filter, read in pages.
async fn ban_ids(control: &Control, filter: BanFilter<'_>, limit: usize) -> Vec<String> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = control.bans(filter, after, limit).await.expect("a reply");
        assert!(page.bans.len() <= limit);
        ids.extend(page.bans.into_iter().map(|ban| ban.id));
        match page.next {
            Some(next) => after = Some(next),
            None => return ids,
        }
    }
}

async fn bans_are_listed_by_their_ends_until_they_end_or_are_removed(control: &Control) {
    use ListedBanMode::{Enforce, Watch};
    let end = now_ms() + 3_600_000;
    // Several bans end at the same time.
    let ban = |number: u64| listed_ban(number, if number < 4 { Watch } else { Enforce }, end + number / 3);
    let counts = control.record_bans((0..10).map(ban).collect()).await.expect("recorded");
    assert_eq!(counts, BanCounts { enforce: 6, watch: 4 });
    let id = |number: u64| format!("{number:016x}");
    let all: Vec<String> = (0..10).rev().map(id).collect();
    for limit in [1, 3, 10, 500] {
        assert_eq!(ban_ids(control, BanFilter::default(), limit).await, all, "{limit}");
    }
    let even = BanFilter { domain: Some("even"), mode: None };
    assert_eq!(ban_ids(control, even, 2).await, [8, 6, 4, 2, 0].map(id));
    let watched = BanFilter { domain: Some("even"), mode: Some(Watch) };
    assert_eq!(ban_ids(control, watched, 2).await, [2, 0].map(id));

    // A later ban of the same counter replaces the former one, and now it denies.
    let later = ListedBan { level: 2, ..listed_ban(0, Enforce, end + 100) };
    let counts = control.record_bans(vec![later.clone()]).await.expect("recorded");
    assert_eq!(counts, BanCounts { enforce: 7, watch: 3 });
    let found = control.ban(&id(0)).await.expect("a reply").expect("listed");
    assert_eq!(found, ListedBan { instance: control.instance().to_owned(), ..later });
    assert_eq!(ban_ids(control, BanFilter::default(), 4).await[0], id(0));

    assert!(control.remove_ban(&id(0)).await.expect("removed"));
    assert!(!control.remove_ban(&id(0)).await.expect("a reply"));
    assert_eq!(control.ban(&id(0)).await, Ok(None));
    let short = now_ms() + 100;
    control.record_bans(vec![listed_ban(11, Enforce, short)]).await.expect("recorded");
    while now_ms() <= short {
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(control.ban(&id(11)).await, Ok(None));
    assert_eq!(ban_ids(control, BanFilter::default(), 5).await, all[..9]);
    let counts = control.record_bans(vec![listed_ban(12, Watch, 1)]).await.expect("recorded");
    assert_eq!(counts, BanCounts { enforce: 6, watch: 3 });
    let long = ListedBan { rule: "r".into(), ..listed_ban(13, Watch, end) };
    let value = "é".repeat(bounds::MAX_BAN_KEY_BYTES);
    let long = ListedBan { descriptor: vec![Pair { key: "k".into(), value }], ..long };
    control.record_bans(vec![long]).await.expect("recorded");
    assert!(control.ban(&id(13)).await.expect("a reply").expect("listed").is_truncated);
}

async fn of_too_many_bans_watched_ones_and_then_the_first_to_end_make_room(control: &Control) {
    use ListedBanMode::{Enforce, Watch};
    let end = now_ms() + 3_600_000;
    let most = u64::try_from(bounds::MAX_BANS).expect("small");
    let step = bounds::MAX_BAN_BATCH;
    for first in (0..most).step_by(step) {
        let bans = first..first + u64::try_from(step).expect("small");
        let mode = |number| if number == most - 1 { Watch } else { Enforce };
        let bans = bans.map(|number| listed_ban(number, mode(number), end + number)).collect();
        control.record_bans(bans).await.expect("recorded");
    }
    let ban = |number: u64| listed_ban(number, Enforce, end + number);
    // The watched one goes first although it ends last.
    let counts = control.record_bans(vec![ban(most)]).await.expect("recorded");
    assert_eq!(counts, BanCounts { enforce: most, watch: 0 });
    let counts = control.record_bans(vec![ban(most + 1)]).await.expect("recorded");
    assert_eq!(counts, BanCounts { enforce: most, watch: 0 });
    for (number, is_listed) in [(0, false), (1, true), (most - 1, false), (most, true), (most + 1, true)] {
        let found = control.ban(&format!("{number:016x}")).await.expect("a reply");
        assert_eq!(found.is_some(), is_listed, "{number}");
    }
}

async fn the_removal_of_a_ban_is_audited(control: &Control) {
    let ban = listed_ban(7, ListedBanMode::Enforce, now_ms() + 60_000);
    for removal in [BanRemoval::Lift, BanRemoval::Forgive] {
        control.record_ban_removal("ada", &ban, removal, "a NAT").await.expect("recorded");
        let entry = control.audit(None, 1).await.expect("a reply").remove(0);
        // Releases without bans read it as the reset of a counter.
        assert_eq!((entry.action, entry.ban), (Action::ResetCounter, Some(removal)));
        assert_eq!((&*entry.author, &*entry.comment), ("ada", "a NAT"));
        assert_eq!(entry.subject, "ban odd api_key api_key=7");
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

async fn the_oldest_files_make_room_for_others(control: &Control) {
    let fits = bounds::MAX_STORED_BYTES / bounds::MAX_VERSION_BYTES;
    let large = "#".repeat(bounds::MAX_VERSION_BYTES - "rules.yaml".len());
    let made = u64::try_from(fits).expect("small") + 4;
    for number in 0..made {
        control.apply(draft((number > 0).then_some(number), &large)).await.expect("made");
    }
    let kept = control.versions(None, 1_000).await.expect("a reply");
    assert!((fits - 1..=fits).contains(&kept.len()), "{} are kept", kept.len());
    assert_eq!((kept[0].number, control.current().await), (made, Ok(Some(made))));
    assert_eq!(control.version(made).await.expect("a reply").expect("there").1, files(&large));
    assert_eq!(control.version(1).await, Ok(None));
    // What is as small as most are fits beside.
    control.apply(draft(Some(made), "# small")).await.expect("made");
    assert!(control.versions(None, 1_000).await.expect("a reply").len() >= fits - 1);
}

#[tokio::test]
async fn an_apply_with_a_lost_response_makes_one_version() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let control = redis_control(&format!("redis://127.0.0.1:{}", proxy.port()), "");
    let mut current = control.apply(draft(None, "# 0")).await.expect("made").number;
    for round in 1..20_usize {
        // The server obeys, and the answer is cut off, at once or halfway.
        proxy.set(Direction::ToClient, Way::CutAfter(round % 4));
        let (applied, ()) = join!(control.apply(draft(Some(current), &format!("# {round}"))), async {
            sleep(Duration::from_millis(40)).await;
            proxy.set(Direction::ToClient, Way::Open);
        });
        current = applied.expect("made").number;
        assert_eq!(current, 1 + u64::try_from(round).expect("small"));
        control.put_entry(entry("same", None)).await.expect("put");
    }
    let direct = redis_control(&redis.url(), "");
    assert_eq!(direct.versions(None, 100).await.expect("a reply").len(), 20);
    assert_eq!(direct.audit(None, 100).await.expect("a reply").len(), 20 + 19);
}

#[tokio::test]
async fn a_list_change_with_a_lost_response_is_audited_once() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let control = redis_control(&format!("redis://127.0.0.1:{}", proxy.port()), "");
    control.put_entry(entry("0", None)).await.expect("put");
    for round in 1..10_usize {
        proxy.set(Direction::ToClient, Way::CutAfter(round % 4));
        let (put, ()) = join!(control.put_entry(entry(&round.to_string(), None)), async {
            sleep(Duration::from_millis(40)).await;
            proxy.set(Direction::ToClient, Way::Open);
        });
        put.expect("put");
    }
    let direct = redis_control(&redis.url(), "");
    assert_eq!(direct.runtime().await.expect("a reply").generation, 10);
    assert_eq!(direct.audit(None, 100).await.expect("a reply").len(), 10);
}

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
