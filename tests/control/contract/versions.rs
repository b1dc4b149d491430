//! Versions of the rules; changes whose response is lost are made once.

use super::*;
use crate::control::{files, redis_control};
use crate::support::proxy::{Direction, Proxy, Way};

promises! {
    versions_count_up_and_never_change,
    of_two_racing_writers_one_wins_and_the_other_changes_nothing,
    a_rollback_is_a_version_of_its_own,
    too_large_versions_are_refused_and_the_oldest_versions_make_room,
    the_oldest_files_make_room_for_others,
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
    let control = reconciled(redis_control(&format!("redis://127.0.0.1:{}", proxy.port()), ""));
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
        put_entry(&control, entry("same", None)).await.expect("put");
    }
    let direct = redis_control(&redis.url(), "");
    assert_eq!(direct.versions(None, 100).await.expect("a reply").len(), 20);
    assert_eq!(direct.audit(None, 100).await.expect("a reply").len(), 20 + 19);
}

#[tokio::test]
async fn a_list_change_with_a_lost_response_is_audited_once() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let control = reconciled(redis_control(&format!("redis://127.0.0.1:{}", proxy.port()), ""));
    put_entry(&control, entry("0", None)).await.expect("put");
    for round in 1..10_usize {
        proxy.set(Direction::ToClient, Way::CutAfter(round % 4));
        let (put, ()) = join!(put_entry(&control, entry(&round.to_string(), None)), async {
            sleep(Duration::from_millis(40)).await;
            proxy.set(Direction::ToClient, Way::Open);
        });
        put.expect("put");
    }
    let direct = redis_control(&redis.url(), "");
    assert_eq!(entries_in(&direct).await.len(), 10);
    assert_eq!(direct.audit(None, 100).await.expect("a reply").len(), 10);
}
