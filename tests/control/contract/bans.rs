//! Bans that instances report.

use tollgate::control::{BanCounts, BanFilter, BanRemoval};

use super::*;

promises!(
    bans_are_listed_by_their_ends_until_they_end_or_are_removed,
    of_too_many_bans_watched_ones_and_then_the_first_to_end_make_room,
    the_removal_of_a_ban_is_audited,
);

fn listed_ban(number: u64, mode: BanMode, ends_at_ms: u64) -> ListedBan {
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
    use BanMode::{Enforce, Watch};
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
    use BanMode::{Enforce, Watch};
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
    let ban = listed_ban(7, BanMode::Enforce, now_ms() + 60_000);
    for removal in [BanRemoval::Lift, BanRemoval::Forgive] {
        control.record_ban_removal("ada", &ban, removal, "a NAT").await.expect("recorded");
        let entry = control.audit(None, 1).await.expect("a reply").remove(0);
        // Releases without bans read it as the reset of a counter.
        assert_eq!((entry.action, entry.ban), (Action::ResetCounter, Some(removal)));
        assert_eq!((&*entry.author, &*entry.comment), ("ada", "a NAT"));
        assert_eq!(entry.subject, "ban odd api_key api_key=7");
    }
}
