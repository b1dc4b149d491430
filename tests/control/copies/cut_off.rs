//! A writing region that is cut off.

use std::sync::{Arc, atomic::Ordering};

use tokio_util::task::AbortOnDropHandle;
use tollgate::control::{RulesCopier, RulesStatus};

use super::{Pair, Peer};
use crate::control::{ban, limit, until};

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
