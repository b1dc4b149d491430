//! Background task that keeps the slot table current.

use std::time::{Duration, Instant};
use std::{collections::HashSet, pin::pin, sync::Arc};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tollgate_runtime::backoff::{Backoff, lengthened};
use tollgate_runtime::outage::OutageLog;

use super::slots::{Range, SLOTS, count_slots, query_slots};
use super::{DiscoveryPhase, SharedCluster, table::Route};
use crate::redis::{connection::Connection, url::Address};

/// Time limit for connecting to all masters.
const REACH_TIMEOUT: Duration = Duration::from_millis(500);

/// Time after which the next node is queried too.
const NODE_TIMEOUT: Duration = Duration::from_millis(150);

/// Incomplete replies after which the most complete one is used.
const MAX_PARTIAL_VIEWS: usize = 3;

/// Shortest time between two refreshes, whatever happens. Doubles with each one that changes nothing.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);

/// Upper bound of the doubling: the delay with which a promotion may be noticed.
const MAX_BACKOFF: Duration = Duration::from_millis(700);

/// Interval of the health checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(150);

/// Time without a reason to refresh after which the backoff is reset: two intervals.
const QUIET_TIME: Duration = Duration::from_millis(300);

/// Longest time between two refreshes, before jitter.
const REFRESH_INTERVAL: Duration = Duration::from_secs(12);

/// Refreshes the slots when requested, when a node is unhealthy, and at intervals, until no handle is left.
pub(super) async fn run(
    shared: Arc<SharedCluster>,
    requests: watch::Receiver<()>,
    report: watch::Sender<DiscoveryPhase>,
) {
    let mut closing = requests.clone();
    tokio::select! {
        () = refresh_loop(shared, requests, report) => {}
        () = async { while closing.changed().await.is_ok() {} } => {}
    }
}

async fn refresh_loop(
    shared: Arc<SharedCluster>,
    mut requests: watch::Receiver<()>,
    report: watch::Sender<DiscoveryPhase>,
) {
    let mut outage = OutageLog::default();
    let mut backoff = Backoff::new(INITIAL_BACKOFF, MAX_BACKOFF);
    let mut current = Vec::new();
    let first = fastrand::usize(..=usize::from(u8::MAX));
    for round in first.. {
        let mut reading = pin!(read_slots(&shared, round));
        let read = match timeout(shared.options.timeout.max(NODE_TIMEOUT), &mut reading).await {
            Ok(read) => read,
            Err(_) => {
                // Requests wait for the first refresh, but not each for its whole duration.
                report_failure(&report, "no node has returned the slots so far".into());
                reading.await
            }
        };
        let failed = read.is_err();
        match read {
            Ok(ranges) => {
                if ranges != current {
                    backoff.reset();
                }
                apply(&shared, &ranges, &report).await;
                current = ranges;
                if outage.recovered() {
                    tracing::info!("Redis cluster slots readable again");
                }
            }
            Err(reason) => {
                if outage.failed() {
                    tracing::warn!(%reason, "Redis cluster slots unreadable");
                }
                report_failure(&report, reason);
            }
        }
        sleep(backoff.pause()).await;
        let started = Instant::now();
        if wait_for_reason(&shared, &mut requests, failed, &report).await.is_err() {
            return;
        }
        if started.elapsed() > QUIET_TIME {
            backoff.reset();
        }
    }
}

/// Has requests fail at once, unless there is a table, which may still serve.
fn report_failure(report: &watch::Sender<DiscoveryPhase>, reason: String) {
    if matches!(&*report.borrow(), DiscoveryPhase::Pending | DiscoveryPhase::Failed(_)) {
        report.send_replace(DiscoveryPhase::Failed(reason));
    }
}

async fn apply(shared: &SharedCluster, ranges: &[Range], report: &watch::Sender<DiscoveryPhase>) {
    {
        let mut table = shared.table.lock();
        table.replace(ranges);
        table.connect();
    }
    if !matches!(&*report.borrow(), DiscoveryPhase::Reached) {
        report.send_replace(DiscoveryPhase::Discovered);
        if wait_for_masters(shared, ranges).await {
            report.send_replace(DiscoveryPhase::Reached);
        }
    }
}

/// Waits for a reason to refresh.
async fn wait_for_reason(
    shared: &SharedCluster,
    requests: &mut watch::Receiver<()>,
    failed: bool,
    report: &watch::Sender<DiscoveryPhase>,
) -> Result<(), watch::error::RecvError> {
    let started = Instant::now();
    let max_wait = lengthened(REFRESH_INTERVAL);
    loop {
        tokio::select! {
            changed = requests.changed() => return changed,
            () = sleep(lengthened(CHECK_INTERVAL)) => {}
        }
        let is_unhealthy = failed
            || !matches!(&*report.borrow(), DiscoveryPhase::Reached)
            || !shared.table.lock().is_healthy();
        if is_unhealthy || started.elapsed() > max_wait {
            return Ok(());
        }
    }
}

/// Queries one node after the other, each when those before it failed or are slow, until one reports an owner of every
/// slot. Each round begins with a different node: a node that is cut off from the rest may have an old view.
async fn read_slots(shared: &SharedCluster, round: usize) -> Result<Vec<Range>, String> {
    let mut nodes = candidates(shared, round).into_iter();
    let mut queries = FuturesUnordered::new();
    let mut reason = String::new();
    let (mut best, mut partial) = (Vec::new(), 0_usize);
    while partial < MAX_PARTIAL_VIEWS {
        match nodes.next() {
            Some((node, connection)) => queries.push(query_slots(shared, node, connection)),
            None if queries.is_empty() => break,
            None => {}
        }
        match timeout(NODE_TIMEOUT, queries.next()).await {
            Ok(Some(Ok(ranges))) => {
                if count_slots(&ranges) >= SLOTS {
                    return Ok(ranges);
                }
                partial = partial.saturating_add(1);
                if count_slots(&ranges) > count_slots(&best) {
                    best = ranges;
                }
            }
            Ok(Some(Err(error))) => reason = error,
            Ok(None) | Err(_) => {}
        }
    }
    if best.is_empty() { Err(reason) } else { Ok(best) }
}

/// The nodes to query, with existing connections. Connected and other nodes alternate, so that some of the others are
/// queried soon if the connections lead to nodes that are cut off.
fn candidates(shared: &SharedCluster, round: usize) -> Vec<(Address, Option<Connection>)> {
    let (mut connected, mut others) = {
        let table = shared.table.lock();
        (table.reachable(), table.addresses())
    };
    others.extend(shared.seeds.iter().cloned());
    others.retain(|node| connected.iter().all(|route| route.node != *node));
    let [first_connected, first_other] =
        [connected.len(), others.len()].map(|length| round.checked_rem(length).unwrap_or_default());
    connected.rotate_left(first_connected);
    others.rotate_left(first_other);
    let mut connected =
        connected.into_iter().map(|Route { node, server }| (node, Some(server.connection.clone())));
    let mut others = others.into_iter().map(|node| (node, None));
    let mut nodes: Vec<(Address, Option<Connection>)> = Vec::new();
    loop {
        let both = [connected.next(), others.next()];
        if both.iter().all(Option::is_none) {
            return nodes;
        }
        for (node, connection) in both.into_iter().flatten() {
            if nodes.iter().all(|(current, _)| *current != node) {
                nodes.push((node, connection));
            }
        }
    }
}

/// Waits until all masters are connected, so that the first requests need not wait for connections, for a limited time.
/// Returns whether one of them is.
async fn wait_for_masters(shared: &SharedCluster, ranges: &[Range]) -> bool {
    let masters: HashSet<&Address> = ranges.iter().map(|range| &range.master).collect();
    let routes: Vec<_> = {
        let mut table = shared.table.lock();
        masters.into_iter().filter_map(|master| table.node(master)).collect()
    };
    let mut reached: FuturesUnordered<_> =
        routes.iter().map(|route| route.server.connection.connected()).collect();
    let all = async { while reached.next().await.is_some() {} };
    // One of them may be down.
    let _ = timeout(REACH_TIMEOUT, all).await;
    routes.iter().any(|route| route.server.connection.is_up())
}
