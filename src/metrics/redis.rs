//! What is counted of calls to Redis, and of those that were saved.

use std::sync::{Arc, LazyLock};

use metrics::{Counter, counter};

use super::striped::Striped;

/// What saves a call to Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A denial that still stands.
    Denial,
    /// Tokens that were charged ahead.
    Lease,
}

static CALLS: LazyLock<Arc<Striped<4>>> = LazyLock::new(|| {
    let series = |way| counter!("tollgate_redis_calls_total", "way" => way);
    Striped::new(["sent", "joined", "denial", "lease"].map(series))
});

static COMMANDS: LazyLock<Counter> = LazyLock::new(|| counter!("tollgate_redis_commands_total"));

/// Counts a call that was decided without Redis.
pub fn redis_saved(way: Way) {
    CALLS.add(match way {
        Way::Denial => [0, 0, 1, 0],
        Way::Lease => [0, 0, 0, 1],
    });
}

/// Counts commands that were sent, the calls in them, and other calls that were decided with those because they ask
/// the same.
pub fn redis_sent(commands: usize, calls: usize, joined: usize) {
    COMMANDS.increment(commands as u64);
    CALLS.add([calls as u64, joined as u64, 0, 0]);
}
