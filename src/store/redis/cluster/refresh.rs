//! The task that keeps the table of slots current.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::{Duration, Instant},
};

use ::redis::{Value, cmd};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    Phase, Shared,
    slots::{self, Range},
};
use crate::store::redis::{address::Address, connection::SendError};

/// How long a node may take to answer, a new connection to it included; then the next one is asked.
const ASK_TIMEOUT: Duration = Duration::from_millis(500);

/// The shortest time between two readings, whatever happens.
const SHORTEST: Duration = Duration::from_millis(100);

/// The time between two readings while something is amiss, and between two looks whether something is.
const AMISS: Duration = Duration::from_millis(250);

/// The longest time between two readings.
const LONGEST: Duration = Duration::from_secs(12);

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
    let mut is_told = false;
    let begin = usize::from(random());
    for turn in begin.. {
        let read = read_slots(&shared, turn).await;
        let failed = read.is_err();
        match read {
            Ok(ranges) => {
                shared.table.lock().replace(&ranges);
                shared.table.lock().connect();
                if is_told {
                    tracing::info!("the slots of the Redis cluster can be read again");
                }
                if !matches!(&*report.borrow(), Phase::Reached) {
                    report.send_replace(Phase::Read);
                    if reach(&shared, &ranges).await {
                        report.send_replace(Phase::Reached);
                    }
                }
            }
            Err(reason) => {
                if !is_told {
                    tracing::warn!(%reason, "can't read the slots of the Redis cluster");
                }
                // The table that there is may serve.
                if matches!(&*report.borrow(), Phase::Unread | Phase::Failing(_)) {
                    report.send_replace(Phase::Failing(reason));
                }
            }
        }
        is_told = failed;
        if wait(&shared, &mut wanted, failed, &report).await.is_err() {
            return;
        }
    }
}

/// Waits for the time of the next reading.
async fn wait(
    shared: &Shared,
    wanted: &mut watch::Receiver<()>,
    failed: bool,
    report: &watch::Sender<Phase>,
) -> Result<(), watch::error::RecvError> {
    let begun = Instant::now();
    let longest = jittered(LONGEST);
    sleep(jittered(SHORTEST)).await;
    loop {
        tokio::select! {
            changed = wanted.changed() => return changed,
            () = sleep(jittered(AMISS.saturating_sub(SHORTEST))) => {}
        }
        let is_amiss =
            failed || !matches!(&*report.borrow(), Phase::Reached) || !shared.table.lock().is_sound();
        if is_amiss || begun.elapsed() > longest {
            return Ok(());
        }
    }
}

/// `time` and up to a quarter more, so that workers and instances don't all ask at once.
fn jittered(time: Duration) -> Duration {
    let part = time.saturating_mul(random().into()).checked_div(1024).unwrap_or_default();
    time.saturating_add(part)
}

/// Another number each time.
fn random() -> u8 {
    let [byte, ..] = RandomState::new().hash_one(()).to_le_bytes();
    byte
}

/// Asks one node after the other, beginning with another one at each turn: a node that is cut off from the rest may
/// have an old view.
async fn read_slots(shared: &Shared, turn: usize) -> Result<Vec<Range>, String> {
    let mut reason = String::new();
    let mut tried = Vec::new();
    let mut routes = shared.table.lock().reachable();
    let begin = turn.checked_rem(routes.len()).unwrap_or_default();
    routes.rotate_left(begin);
    for route in routes {
        match answer(&route.node, route.connection.send(cmd("CLUSTER").arg("SLOTS"))).await {
            Ok(ranges) => return Ok(ranges),
            Err(error) => reason = format!("{}: {error}", route.node),
        }
        tried.push(route.node);
    }
    let mut others = shared.table.lock().addresses();
    others.extend(shared.seeds.iter().cloned());
    let begin = turn.checked_rem(others.len()).unwrap_or_default();
    others.rotate_left(begin);
    for node in others {
        if tried.contains(&node) {
            continue;
        }
        match answer(&node, ask_anew(shared, &node)).await {
            Ok(ranges) => return Ok(ranges),
            Err(error) => reason = format!("{node}: {error}"),
        }
        tried.push(node);
    }
    Err(reason)
}

/// Asks on a connection that is made for it.
async fn ask_anew(shared: &Shared, node: &Address) -> Result<Value, SendError> {
    let mut connection = shared.access.connect(node).await.map_err(SendError::Failed)?;
    let answer = connection.send_packed_command(cmd("CLUSTER").arg("SLOTS")).await;
    answer.and_then(Value::extract_error).map_err(SendError::Failed)
}

/// What a node answers. That there are no slots at all is the view of a node that left the cluster, or never was in
/// it.
async fn answer(
    node: &Address,
    asked: impl Future<Output = Result<Value, SendError>>,
) -> Result<Vec<Range>, String> {
    match timeout(ASK_TIMEOUT, asked).await {
        Ok(Ok(answer)) => match slots::read(&answer, node) {
            Some(ranges) if ranges.is_empty() => Err("it knows no slots".into()),
            Some(ranges) => Ok(ranges),
            None => Err("its answer makes no sense".into()),
        },
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {ASK_TIMEOUT:?}")),
    }
}

/// Connects to one master after the other, until one is reached.
async fn reach(shared: &Shared, ranges: &[Range]) -> bool {
    let mut tried = Vec::new();
    for Range { master, .. } in ranges {
        if tried.contains(&master) {
            continue;
        }
        tried.push(master);
        let Some(route) = shared.table.lock().node(master) else { continue };
        if timeout(ASK_TIMEOUT, route.connection.connected()).await == Ok(true) {
            return true;
        }
    }
    false
}
