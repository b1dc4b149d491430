//! What is counted of calls to Redis, and of those that were saved.

use std::sync::LazyLock;

use metrics::{Counter, counter};

/// What saves a call to Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A denial that still stands.
    Denial,
    /// Tokens that were charged ahead.
    Lease,
}

static CALLS: LazyLock<[Counter; 4]> = LazyLock::new(|| {
    ["sent", "joined", "denial", "lease"].map(|way| counter!("tollgate_redis_calls_total", "way" => way))
});

static COMMANDS: LazyLock<Counter> = LazyLock::new(|| counter!("tollgate_redis_commands_total"));

/// Counts a call that was decided without Redis.
pub fn redis_saved(way: Way) {
    let [_, _, denial, lease] = &*CALLS;
    match way {
        Way::Denial => denial.increment(1),
        Way::Lease => lease.increment(1),
    }
}

/// Counts commands that were sent, the calls in them, and other calls that were decided with those because they ask
/// the same.
pub fn redis_sent(commands: usize, calls: usize, joined: usize) {
    let [sent, joiners, ..] = &*CALLS;
    COMMANDS.increment(commands as u64);
    sent.increment(calls as u64);
    joiners.increment(joined as u64);
}
