//! The task that keeps the table of slots current.

use std::{
    collections::HashSet,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use tollgate_runtime::{
    backoff::{Backoff, lengthened},
    outage::OutageLog,
};

use super::{
    Phase, Shared,
    discovery::ask,
    slots::{self, Range, SLOTS},
    table::Route,
};
use crate::redis::{address::Address, connection::Connection};

/// How long masters may take to be reached.
const REACH_TIMEOUT: Duration = Duration::from_millis(500);

/// How long nodes are waited for before another one is asked too.
const NODE_TIMEOUT: Duration = Duration::from_millis(150);

/// Answers that don't have all slots before the best of them is believed.
const MAX_PARTIAL_VIEWS: usize = 3;

/// The shortest time between two readings, whatever happens. It doubles with each one that changes nothing.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);

/// What it doubles up to: how late a promotion may be noticed.
const MAX_BACKOFF: Duration = Duration::from_millis(700);

/// Between two looks whether something is amiss; and after so long without a reason to read, the next one is not put
/// off for those before it.
const CHECK_INTERVAL: Duration = Duration::from_millis(150);

/// The longest time between two readings.
const REFRESH_INTERVAL: Duration = Duration::from_secs(12);

/// Reads the slots when somebody asks for it, when something is amiss, and now and then, until nobody is left to
/// ask.
pub(super) async fn keep_current(
    shared: Arc<Shared>,
    wanted: watch::Receiver<()>,
    report: watch::Sender<Phase>,
) {
    let mut closing = wanted.clone();
    tokio::select! {
        () = keep_reading(shared, wanted, report) => {}
        () = async { while closing.changed().await.is_ok() {} } => {}
    }
}

async fn keep_reading(shared: Arc<Shared>, mut wanted: watch::Receiver<()>, report: watch::Sender<Phase>) {
    let mut outage = OutageLog::default();
    let mut backoff = Backoff::new(INITIAL_BACKOFF, MAX_BACKOFF);
    let mut known = Vec::new();
    let begin = fastrand::usize(..=usize::from(u8::MAX));
    for turn in begin.. {
        let mut reading = pin!(read_slots(&shared, turn));
        let read = match timeout(shared.terms.timeout.max(NODE_TIMEOUT), &mut reading).await {
            Ok(read) => read,
            Err(_) => {
                // Calls wait for the first reading, but not one after the other for as long as it takes.
                give_up(&report, "no node has into_store_error the slots so far".into());
                reading.await
            }
        };
        let failed = read.is_err();
        match read {
            Ok(ranges) => {
                if ranges != known {
                    backoff.reset();
                }
                take_over(&shared, &ranges, &report).await;
                known = ranges;
                if outage.recovered() {
                    tracing::info!("Redis cluster slots readable again");
                }
            }
            Err(reason) => {
                if outage.failed() {
                    tracing::warn!(%reason, "Redis cluster slots unreadable");
                }
                give_up(&report, reason);
            }
        }
        sleep(backoff.pause()).await;
        let begun = Instant::now();
        if wait(&shared, &mut wanted, failed, &report).await.is_err() {
            return;
        }
        if begun.elapsed() > CHECK_INTERVAL.saturating_mul(2) {
            backoff.reset();
        }
    }
}

/// Has calls fail at once, unless there is a table, which may serve.
fn give_up(report: &watch::Sender<Phase>, reason: String) {
    if matches!(&*report.borrow(), Phase::Unread | Phase::Failing(_)) {
        report.send_replace(Phase::Failing(reason));
    }
}

async fn take_over(shared: &Shared, ranges: &[Range], report: &watch::Sender<Phase>) {
    {
        let mut table = shared.table.lock();
        table.replace(ranges);
        table.connect();
    }
    if !matches!(&*report.borrow(), Phase::Reached) {
        report.send_replace(Phase::Read);
        if reach(shared, ranges).await {
            report.send_replace(Phase::Reached);
        }
    }
}

/// Waits for a reason to read again.
async fn wait(
    shared: &Shared,
    wanted: &mut watch::Receiver<()>,
    failed: bool,
    report: &watch::Sender<Phase>,
) -> Result<(), watch::error::RecvError> {
    let begun = Instant::now();
    let longest = lengthened(REFRESH_INTERVAL);
    loop {
        tokio::select! {
            changed = wanted.changed() => return changed,
            () = sleep(lengthened(CHECK_INTERVAL)) => {}
        }
        let is_amiss =
            failed || !matches!(&*report.borrow(), Phase::Reached) || !shared.table.lock().is_sound();
        if is_amiss || begun.elapsed() > longest {
            return Ok(());
        }
    }
}

/// Asks one node after the other, each when those before it failed or are slow, until one knows the owner of every
/// slot. It begins with another one at each turn: a node that is cut off from the rest may have an old view.
async fn read_slots(shared: &Shared, turn: usize) -> Result<Vec<Range>, String> {
    let mut nodes = candidates(shared, turn).into_iter();
    let mut asked = FuturesUnordered::new();
    let mut reason = String::new();
    let (mut best, mut partial) = (Vec::new(), 0_usize);
    while partial < MAX_PARTIAL_VIEWS {
        match nodes.next() {
            Some((node, connection)) => asked.push(ask(shared, node, connection)),
            None if asked.is_empty() => break,
            None => {}
        }
        match timeout(NODE_TIMEOUT, asked.next()).await {
            Ok(Some(Ok(ranges))) => {
                if slots::covered(&ranges) >= SLOTS {
                    return Ok(ranges);
                }
                partial = partial.saturating_add(1);
                if slots::covered(&ranges) > slots::covered(&best) {
                    best = ranges;
                }
            }
            Ok(Some(Err(error))) => reason = error,
            Ok(None) | Err(_) => {}
        }
    }
    if best.is_empty() { Err(reason) } else { Ok(best) }
}

/// The nodes to ask, with the connections that there are: those and the others in turn, so that some of the others
/// are asked soon should the connections lead to nodes that are cut off.
fn candidates(shared: &Shared, turn: usize) -> Vec<(Address, Option<Connection>)> {
    let (mut near, mut others) = {
        let table = shared.table.lock();
        (table.reachable(), table.addresses())
    };
    others.extend(shared.seeds.iter().cloned());
    others.retain(|node| near.iter().all(|route| route.node != *node));
    let [first_near, first_other] =
        [near.len(), others.len()].map(|length| turn.checked_rem(length).unwrap_or_default());
    near.rotate_left(first_near);
    others.rotate_left(first_other);
    let mut near = near.into_iter().map(|Route { node, server }| (node, Some(server.connection().clone())));
    let mut others = others.into_iter().map(|node| (node, None));
    let mut nodes: Vec<(Address, Option<Connection>)> = Vec::new();
    loop {
        let both = [near.next(), others.next()];
        if both.iter().all(Option::is_none) {
            return nodes;
        }
        for (node, connection) in both.into_iter().flatten() {
            if nodes.iter().all(|(known, _)| *known != node) {
                nodes.push((node, connection));
            }
        }
    }
}

/// Waits until one of the masters is reached, for some time.
async fn reach(shared: &Shared, ranges: &[Range]) -> bool {
    let masters: HashSet<&Address> = ranges.iter().map(|range| &range.master).collect();
    let routes: Vec<_> = {
        let mut table = shared.table.lock();
        masters.into_iter().filter_map(|master| table.node(master)).collect()
    };
    let mut reached: FuturesUnordered<_> =
        routes.iter().map(|route| route.server.connection().connected()).collect();
    let one = async { while reached.next().await.is_some_and(|is_reached| !is_reached) {} };
    timeout(REACH_TIMEOUT, one).await.is_ok() && routes.iter().any(|route| route.server.connection().is_up())
}
