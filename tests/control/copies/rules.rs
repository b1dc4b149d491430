//! Copies of versions, lists and switches, also when the writing region is cut off.

use tollgate::control::{RulesCopy, Switch, SwitchMode, VersionCopy};

use super::*;
use crate::control::{ban, draft, files, limit, switched};

const NOTHING: Adopted = Adopted { version: false, lists: false, overrides: false };

const BOTH: Adopted = Adopted { version: true, lists: true, ..NOTHING };

fn switch() -> Switch {
    switched("web", "k", SwitchMode::Shadow)
}

#[tokio::test]
async fn a_copy_is_the_state_of_the_writing_region_and_a_second_one_carries_nothing() {
    let pair = Pair::start();
    // Neither has anything, but the copying region may have had lists of its own.
    assert_eq!(pair.copy().await, Adopted { lists: true, ..NOTHING });
    assert_eq!(pair.copy().await, NOTHING);
    pair.apply(None, &limit(1)).await;
    pair.writing.put_entry(ban("a")).await.expect("put");
    pair.writing.put_switch(switch()).await.expect("put");
    assert_eq!(pair.copy().await, BOTH);
    pair.assert_same().await;
    assert_eq!(pair.copy().await, NOTHING);
    pair.writing.remove_entry("a", "ada").await.expect("removed");
    assert_eq!(pair.copy().await, Adopted { lists: true, ..NOTHING });
    pair.apply(Some(1), &limit(2)).await;
    pair.apply(Some(2), &limit(3)).await;
    assert_eq!(pair.copy().await, Adopted { version: true, ..NOTHING });
    pair.assert_same().await;
    let audit = pair.copying.audit(None, 10).await.expect("a log");
    assert_eq!(audit[0].subject, "version 3");
    assert_eq!(audit[0].comment, "copied from region us-east");
}

#[tokio::test]
async fn a_slow_copy_does_not_replace_a_later_one() {
    let pair = Pair::start();
    pair.apply(None, &limit(1)).await;
    let claim = pair.copying.claim_copy(Duration::ZERO).await.expect("a reply");
    let slow = pair.writing.rules_after(&claim.has).await.expect("a copy");
    pair.apply(Some(1), &limit(2)).await;
    pair.writing.put_entry(ban("a")).await.expect("put");
    assert_eq!(pair.copy().await, BOTH);
    assert_eq!(pair.copying.adopt_copy("us-east", &claim, slow).await, Ok(NOTHING));
    pair.assert_same().await;
}

#[tokio::test]
async fn only_the_writing_region_accepts_changes_and_another_can_take_over() {
    let pair = Pair::start();
    pair.apply(None, &limit(1)).await;
    pair.writing.put_entry(ban("a")).await.expect("put");
    pair.copy().await;
    let refused = ControlError::OtherRegion { region: "us-east".into() };
    assert_eq!(pair.copying.apply(draft(Some(1), &limit(2))).await, Err(refused.clone()));
    assert_eq!(pair.copying.put_entry(ban("b")).await, Err(refused.clone()));
    assert_eq!(pair.copying.remove_entry("a", "ada").await, Err(refused.clone()));
    assert_eq!(pair.copying.put_switch(switch()).await, Err(refused));
    pair.assert_same().await;
    // The roles change, and both regions made a version 2.
    pair.apply(Some(1), "# not copied").await;
    pair.copying.set_writing_region(None);
    pair.copying.apply(draft(Some(1), &limit(2))).await.expect("made");
    pair.copying.remove_entry("a", "ada").await.expect("removed");
    let back = Pair { _redis: pair._redis, writing: pair.copying, copying: pair.writing };
    back.copying.set_writing_region(Some("eu-west"));
    assert_eq!(back.copy().await, BOTH);
    back.assert_same().await;
    assert_eq!(back.copying.version(2).await.expect("a reply").expect("there").1, files(&limit(2)));
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
    pair.copy().await;
    pair.apply(Some(1), &limit(2)).await;
    let claim = pair.copying.claim_copy(Duration::ZERO).await.expect("a reply");
    let good = pair.writing.rules_after(&claim.has).await.expect("a copy").version.expect("differs");
    let bad = [
        VersionCopy { token: String::new(), ..good.clone() },
        VersionCopy { token: "x".repeat(65), ..good.clone() },
        VersionCopy { number: 3, ..good.clone() },
        VersionCopy { meta: b"{}".to_vec(), ..good.clone() },
        VersionCopy { files: b"[1]".to_vec(), ..good.clone() },
        VersionCopy { trail: "x".repeat(5_000), ..good },
    ];
    for version in bad {
        let copy = RulesCopy { version: Some(version), ..RulesCopy::default() };
        let refused = pair.copying.adopt_copy("us-east", &claim, copy).await;
        assert!(matches!(refused, Err(ControlError::Malformed(_))), "{refused:?}");
    }
    assert_eq!(pair.copying.current().await, Ok(Some(1)));
}

#[tokio::test]
async fn a_store_in_a_process_has_no_copies() {
    let memory = Control::memory(RulesSource::Memory);
    let refused = memory.rules_after(&RulesIdentity::default()).await;
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
    pair.writing.put_entry(ban("a")).await.expect("put");
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
    until("lists are the same", async || pair.copying.runtime().await == pair.writing.runtime().await).await;
    until("the comparison is shown", async || statuses.iter().all(|status| shown(status) > last)).await;
    until("no problem is left", async || {
        statuses.iter().all(|status| status.now().copy.as_ref().is_some_and(|copy| copy.problem.is_none()))
    })
    .await;
}
