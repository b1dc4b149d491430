//! Metrics of calls to Redis, of calls decided without it, and of the connections.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_metrics::{Computed, Counter, Histogram, StripedFamily, Unit};

use super::servers;
pub use super::servers::breakers_open;
use crate::local::{LocalDecision, Source};
use crate::request::Verdicts;

pub(super) static CALLS: StripedFamily<4, 1> = StripedFamily::with_series(
    "tollgate_redis_calls_total",
    &["source"],
    "Calls by the source of their decision.",
    || [["sent"], ["coalesced"], ["denial_cache"], ["lease"]],
);

pub(super) static COMMANDS: Counter =
    Counter::new("tollgate_redis_commands_total", "Commands sent to Redis to decide calls.");

pub(super) static UNREACHED: Counter = Counter::new(
    "tollgate_redis_unreached_calls_total",
    "Calls in a command on several slots whose slot its node did not serve; each is sent again alone.",
);

pub(super) static BATCH_CALLS: Histogram<7> =
    // A command has 64 at most.
    Histogram::new(
        "tollgate_redis_batch_calls",
        "Calls in one command to Redis.",
        Unit::Count,
        [1, 2, 4, 8, 16, 32, 64],
    );

pub(super) static CLUSTER_CONNECTIONS: Computed<1> = Computed::gauge(
    "tollgate_redis_cluster_connections",
    &["command_slots"],
    "Connections to nodes of a Redis cluster by the slots of one command: one, or any that the node serves.",
    |[declared], page| {
        page.begin(declared);
        for (slots, count) in ["one", "any"].into_iter().zip(connections_by_slots()) {
            page.sample(declared, &[slots], count);
        }
    },
);

/// Connections to nodes of a cluster whose commands have keys of one slot: the node refuses more, or its reply to the probe
/// is outstanding.
pub(super) static ONE_SLOT: AtomicU64 = AtomicU64::new(0);

/// Connections to nodes of a cluster whose commands have keys of any slot that the node serves.
pub(super) static ANY_SLOT: AtomicU64 = AtomicU64::new(0);

/// Number of connections to nodes of a cluster whose commands have keys of one slot, and of any that the node serves.
pub fn connections_by_slots() -> [u64; 2] {
    [&ONE_SLOT, &ANY_SLOT].map(|count| count.load(Ordering::Relaxed))
}

/// A worker's connection to a node of a cluster, counted until this is dropped.
#[derive(Debug)]
pub(super) struct CommandSlotsGauge(&'static AtomicU64);

impl CommandSlotsGauge {
    pub(super) fn new(count: &'static AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for CommandSlotsGauge {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a call that was decided without Redis; returns its verdicts.
pub(super) fn decided_locally((verdicts, source): LocalDecision) -> Verdicts {
    CALLS.add(match source {
        Source::DenialCache => [0, 0, 1, 0],
        Source::Lease => [0, 0, 0, 1],
    });
    verdicts
}

/// Counts commands that are sent, by the number of calls in each, and the calls that were coalesced with these.
pub(super) fn sent(commands: impl ExactSizeIterator<Item = usize>, coalesced: usize) {
    COMMANDS.add(commands.len() as u64);
    let calls = commands.inspect(|calls| BATCH_CALLS.observe(*calls as u64)).fold(0, usize::saturating_add);
    CALLS.add([calls as u64, coalesced as u64, 0, 0]);
}

/// Exports everything at zero, so that the first event appears as a change.
pub fn export() {
    CALLS.export();
    COMMANDS.export();
    UNREACHED.export();
    servers::export();
}
