//! Copies of records, page by page.

use std::future::pending;

use super::*;
use tokio::select;

fn rule_override(value: &str, limit: u32) -> OverrideEntry {
    let entry = serde_json::json!({"domain": "web", "rule": "k", "descriptor": [{"key": "k", "value": value}],
        "rate_limit": {"requests_per_unit": limit}, "reason": "r", "author": "ada", "created_at_ms": 1,
        "expires_at_ms": null});
    serde_json::from_value::<OverrideEntry>(entry).expect("valid")
}

fn key(entry: OverrideEntry) -> String {
    Record::Override(entry).key().to_string()
}

/// Puts overrides, again if the store does not reply in time. No instance enforces them, for which the call would wait.
async fn put(store: &Control, entries: Vec<OverrideEntry>) {
    let stated = || entries.iter().map(|entry| (Record::Override(entry.clone()), None)).collect();
    let putting = async {
        found("the store takes overrides", async || store.put_records(stated()).await.ok()).await;
        pending::<()>().await;
    };
    let stored = until("overrides are put", async || {
        let Some((_, all)) = records_in(store).await else { return false };
        entries.iter().all(|entry| {
            let record = Record::Override(entry.clone());
            let stored = all.get(&record.key().to_string());
            stored.and_then(|payload| serde_json::from_slice(payload).ok()) == Some(record)
        })
    });
    select! {
        _ = stored => {}
        () = putting => {}
    }
}

#[tokio::test]
async fn records_are_copied_whole_at_first_and_then_by_their_changes() {
    let pair = Pair::start();
    pair.copying.set_writing_region(None);
    put(&pair.copying, vec![rule_override("own", 1)]).await;
    // More than a page.
    let many = (0..2_100).map(|at| rule_override(&format!("v{at}"), at)).collect();
    put(&pair.writing, many).await;
    let copier = start_copier(&pair.writing, &pair.copying);
    let are_same = async || are_same(&pair.writing, &pair.copying).await;
    until("all are copied, and the own one is dropped", are_same).await;
    assert_eq!(payloads_in(&pair.copying).await.len(), 2_100);
    let refused = ControlError::OtherRegion { region: "us-east".into() };
    let own = Record::Override(rule_override("own", 1));
    assert_eq!(pair.copying.put_records(vec![(own, None)]).await, Err(refused));

    let lineage = head_in(&pair.copying).await;
    put(&pair.writing, vec![rule_override("v7", 70), rule_override("new", 1)]).await;
    until("changes are copied", are_same).await;
    let after = head_in(&pair.copying).await;
    assert_eq!(
        (after.lineage, after.epoch),
        (lineage.lineage, lineage.epoch),
        "instances fetch changes only"
    );

    // The roles change: what the former copy had alone is dropped, and later changes of it do not hide others.
    copier.abort();
    assert!(copier.await.is_err_and(|error| error.is_cancelled()), "it ends before the roles change");
    pair.copying.set_writing_region(None);
    put(&pair.copying, vec![rule_override("v8", 80)]).await;
    put(&pair.writing, vec![rule_override("lost", 1)]).await;
    let _copier = start_copier(&pair.copying, &pair.writing);
    until("the former writing region copies", are_same).await;
    let all = payloads_in(&pair.writing).await;
    assert_eq!(all.len(), 2_101);
    let has = |value| all.contains_key(&key(rule_override(value, 0)));
    assert!(has("v8") && !has("lost"));
}

#[tokio::test]
async fn records_that_are_removed_or_lost_are_removed_from_the_copy() {
    let pair = Pair::start();
    put(&pair.writing, vec![rule_override("a", 1), rule_override("b", 1)]).await;
    let _copier = start_copier(&pair.writing, &pair.copying);
    let has = async |values: &[&str]| {
        let ids: BTreeSet<_> = values.iter().map(|value| key(rule_override(value, 0))).collect();
        let wanted = format!("the copy has {values:?}");
        until(&wanted, async || {
            let all = records_in(&pair.copying).await;
            all.is_some_and(|(_, all)| all.into_keys().collect::<BTreeSet<_>>() == ids)
        })
        .await;
    };
    has(&["a", "b"]).await;
    let known = head_in(&pair.writing).await;
    cmd("FLUSHALL").exec(&mut pair._redis[0].connect()).expect("flushed");
    put(&pair.writing, vec![rule_override("c", 1)]).await;
    let after = head_in(&pair.writing).await;
    assert_ne!(known.lineage, after.lineage);
    has(&["c"]).await;
}

#[tokio::test]
async fn a_copy_that_is_cut_midway_hides_no_record() {
    let pair = Pair::start();
    pair.copying.set_writing_region(None);
    put(&pair.copying, vec![rule_override("own", 1), rule_override("v7", 70)]).await;
    let before = payloads_in(&pair.copying).await;
    put(&pair.writing, (0..2_100).map(|at| rule_override(&format!("v{at}"), at)).collect()).await;
    let peer = Peer { is_cut_midway: true, ..Peer::new(&pair.writing) };
    let copier = RulesCopier::new(pair.copying.clone(), RulesStatus::default(), Arc::new(peer));
    let _copier = AbortOnDropHandle::new(tokio::spawn(copier.run()));
    let fetched = || -> usize {
        let mut length = cmd("HLEN");
        let length = length.arg(rules_key("copied-records"));
        length.query(&mut pair._redis[1].connect()).expect("a reply")
    };
    until("the first page is fetched", async || fetched() == 500).await;
    assert_eq!(payloads_in(&pair.copying).await, before, "an instance that starts has what there was");
}

#[tokio::test]
async fn a_whole_copy_that_loses_a_page_is_refused_and_soon_made_again() {
    let pair = Pair::start();
    put(&pair.writing, (0..2_100).map(|at| rule_override(&format!("v{at}"), at)).collect()).await;
    let peer = Peer::new(&pair.writing);
    *peer.loses.lock() = Some(pair._redis[1].url());
    let status = RulesStatus::default();
    let copier = RulesCopier::new(pair.copying.clone(), status.clone(), Arc::new(peer.clone()));
    let _copier = AbortOnDropHandle::new(tokio::spawn(copier.run()));
    until("the loss is found", async || {
        let problem = status.now().copy.as_ref().and_then(|copy| copy.problem.clone());
        problem.is_some_and(|problem| problem.contains("has lost a part of the copied records"))
    })
    .await;
    assert!(peer.loses.lock().is_none());
    until("all are copied", async || are_same(&pair.writing, &pair.copying).await).await;
    assert_eq!(payloads_in(&pair.copying).await.len(), 2_100);
}
