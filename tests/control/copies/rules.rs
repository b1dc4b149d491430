//! Copies of versions, lists and switches, also when the writing region is cut off.

use tollgate::control::{Record, SwitchMode, VersionCopy};

use super::*;
use crate::control::{ban, draft, files, limit, put, put_entry, remove, switched};

fn switch() -> Record {
    Record::Switch(switched("web", "k", SwitchMode::Shadow))
}

#[tokio::test]
async fn a_copy_is_the_state_of_the_writing_region_and_a_second_one_carries_nothing() {
    let pair = Pair::start();
    assert!(!pair.copy_version().await);
    pair.apply(None, &limit(1)).await;
    put_entry(&pair.writing, ban("a")).await.expect("put");
    put(&pair.writing, switch()).await.expect("put");
    assert!(pair.copy_version().await);
    pair.assert_same_version().await;
    assert!(!pair.copy_version().await);
    pair.apply(Some(1), &limit(2)).await;
    pair.apply(Some(2), &limit(3)).await;
    assert!(pair.copy_version().await);
    pair.assert_same_version().await;
    let latest = async || pair.copying.audit(None, 10).await.expect("a log").remove(0);
    let audit = latest().await;
    assert_eq!((&*audit.subject, &*audit.comment), ("version 3", "copied from region us-east"));

    let status = RulesStatus::default();
    let peer = Arc::new(Peer::new(&pair.writing));
    let copier = RulesCopier::new(pair.copying.clone(), status.clone(), peer);
    let _copier = AbortOnDropHandle::new(tokio::spawn(copier.run()));
    pair.same_records().await;
    assert_eq!(payloads_in(&pair.copying).await.len(), 2);
    let audit = latest().await;
    assert_eq!((&*audit.subject, &*audit.comment), ("2 changes of records", "copied from region us-east"));
    let compared = || status.now().copy.as_ref().and_then(|copy| copy.compared_ms);
    let (first, head) = (compared(), head_in(&pair.copying).await);
    until("it is compared again", async || compared() > first).await;
    let first = compared();
    until("it is compared once more", async || compared() > first).await;
    assert_eq!((latest().await, head_in(&pair.copying).await), (audit, head), "nothing is copied again");
    // An instance of the writing region, which holds what it removes.
    let instance = reconciled(pair.writing.clone());
    held(&instance, |runtime| !runtime.entries.is_empty()).await;
    assert!(remove(&instance, Record::ListEntry(ban("a")), "ada").await.expect("removed"));
    pair.same_records().await;
    assert_eq!(payloads_in(&pair.copying).await.len(), 1);
}

#[tokio::test]
async fn a_slow_copy_does_not_replace_a_later_one() {
    let pair = Pair::start();
    pair.apply(None, &limit(1)).await;
    let claim = pair.copying.claim_copy(Duration::ZERO).await.expect("a reply");
    let slow = pair.writing.rules_after(&claim.version).await.expect("a copy");
    pair.apply(Some(1), &limit(2)).await;
    assert!(pair.copy_version().await);
    assert_eq!(pair.copying.adopt_version("us-east", &claim, slow.version).await, Ok(false));
    pair.assert_same_version().await;
}

#[tokio::test]
async fn only_the_writing_region_accepts_changes_and_another_can_take_over() {
    let pair = Pair::start();
    pair.apply(None, &limit(1)).await;
    put_entry(&pair.writing, ban("a")).await.expect("put");
    pair.copy_version().await;
    let copier = start_copier(&pair.writing, &pair.copying);
    pair.same_records().await;
    reconciled(pair.copying.clone());
    held(&pair.copying, |runtime| !runtime.entries.is_empty()).await;
    let refused = ControlError::OtherRegion { region: "us-east".into() };
    assert_eq!(pair.copying.apply(draft(Some(1), &limit(2))).await, Err(refused.clone()));
    assert_eq!(put_entry(&pair.copying, ban("b")).await, Err(refused.clone()));
    let removed = remove(&pair.copying, Record::ListEntry(ban("a")), "ada").await;
    assert_eq!(removed, Err(refused.clone()));
    assert_eq!(put(&pair.copying, switch()).await, Err(refused));
    pair.assert_same_version().await;
    assert!(are_same(&pair.writing, &pair.copying).await);
    // The roles change, and both regions made a version 2.
    copier.abort();
    assert!(copier.await.is_err_and(|error| error.is_cancelled()), "it ends before the roles change");
    pair.apply(Some(1), "# not copied").await;
    pair.copying.set_writing_region(None);
    pair.copying.apply(draft(Some(1), &limit(2))).await.expect("made");
    assert!(remove(&pair.copying, Record::ListEntry(ban("a")), "ada").await.expect("removed"));
    let back = Pair { _redis: pair._redis, writing: pair.copying, copying: pair.writing };
    back.copying.set_writing_region(Some("us-east"));
    assert!(back.copy_version().await);
    back.assert_same_version().await;
    assert_eq!(back.copying.version(2).await.expect("a reply").expect("there").1, files(&limit(2)));
    let _copier = start_copier(&back.writing, &back.copying);
    back.same_records().await;
    assert_eq!(payloads_in(&back.copying).await.len(), 0);
}

#[tokio::test]
async fn of_concurrent_instances_one_compares_in_an_interval() {
    let pair = Pair::start();
    let mut claims = Vec::new();
    for _ in 0..5 {
        claims.push(pair.copying.claim_copy(Duration::from_secs(3_600)).await.expect("a reply"));
    }
    let claimed: Vec<bool> = claims.iter().map(|claim| claim.is_claimed).collect();
    assert_eq!(claimed, [true, false, false, false, false]);
    assert_eq!(claims[4].compared_ms, None);
    pair.copying.compared(&claims[0]).await.expect("recorded");
    let claim = pair.copying.claim_copy(Duration::from_secs(3_600)).await.expect("a reply");
    assert_eq!(claim.compared_ms, Some(claims[0].now_ms));
}

#[tokio::test]
async fn malformed_copies_change_nothing() {
    let pair = Pair::start();
    pair.apply(None, &limit(1)).await;
    pair.copy_version().await;
    pair.apply(Some(1), &limit(2)).await;
    let claim = pair.copying.claim_copy(Duration::ZERO).await.expect("a reply");
    let good = pair.writing.rules_after(&claim.version).await.expect("a copy").version.expect("differs");
    let bad = [
        VersionCopy { token: String::new(), ..good.clone() },
        VersionCopy { token: "x".repeat(65), ..good.clone() },
        VersionCopy { number: 3, ..good.clone() },
        VersionCopy { meta: b"{}".to_vec(), ..good.clone() },
        VersionCopy { files: b"[1]".to_vec(), ..good.clone() },
        VersionCopy { trail: "x".repeat(5_000), ..good },
    ];
    for version in bad {
        let refused = pair.copying.adopt_version("us-east", &claim, Some(version)).await;
        assert!(matches!(refused, Err(ControlError::Malformed(_))), "{refused:?}");
    }
    assert_eq!(pair.copying.current().await, Ok(Some(1)));
}

#[tokio::test]
async fn a_store_in_a_process_has_no_copies() {
    let memory = Control::memory(RulesSource::Memory);
    let refused = memory.rules_after("").await;
    assert!(matches!(refused, Err(ControlError::Unavailable(_))), "{refused:?}");
}

#[tokio::test]
async fn the_last_copy_stays_while_the_writing_region_is_cut_off_and_catches_up_by_itself() {
    let pair = Pair::start();
    let peer = Peer::new(&pair.writing);
    // Two instances of the region.
    let statuses = [RulesStatus::default(), RulesStatus::default()];
    let start = |status: &RulesStatus| {
        let copier = RulesCopier::new(pair.copying.clone(), status.clone(), Arc::new(peer.clone()));
        AbortOnDropHandle::new(tokio::spawn(copier.run()))
    };
    let _copiers = statuses.each_ref().map(start);
    let copied = async |version: u64| {
        until("it is copied", async || pair.copying.current().await == Ok(Some(version))).await;
    };
    pair.apply(None, &limit(1)).await;
    copied(1).await;
    until("both show the comparison", async || {
        let shown = statuses.each_ref().map(|status| status.now().copy.clone().unwrap_or_default());
        shown.iter().all(|copy| copy.compared_ms.is_some() && copy.region == "us-east")
    })
    .await;

    peer.is_cut.store(true, Ordering::Relaxed);
    pair.apply(Some(1), &limit(2)).await;
    put_entry(&pair.writing, ban("a")).await.expect("put");
    until("a failure is shown", async || {
        let problem = |status: &RulesStatus| status.now().copy.as_ref()?.problem.clone();
        statuses.iter().any(|status| problem(status).as_deref() == Some("unreachable"))
    })
    .await;
    assert_eq!(pair.copying.current().await, Ok(Some(1)));
    let shown = |status: &RulesStatus| status.now().copy.as_ref().and_then(|copy| copy.compared_ms);
    let last = statuses.iter().map(shown).max().expect("two");

    peer.is_cut.store(false, Ordering::Relaxed);
    copied(2).await;
    pair.same_records().await;
    assert_eq!(entries_in(&pair.copying).await.len(), 1);
    until("the comparison is shown", async || statuses.iter().all(|status| shown(status) > last)).await;
    until("no problem is left", async || {
        statuses.iter().all(|status| status.now().copy.as_ref().is_some_and(|copy| copy.problem.is_none()))
    })
    .await;
}
