//! What is counted of calls to Redis, and of those that were saved.

use std::sync::{Arc, LazyLock};

use metrics::{Counter, Gauge, counter, gauge};

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

static OPENINGS: LazyLock<Counter> = LazyLock::new(|| counter!("tollgate_redis_breaker_openings_total"));

static OPEN: LazyLock<Gauge> = LazyLock::new(|| gauge!("tollgate_redis_breakers_open"));

/// A worker's way to a server that is not taken; it is until this is dropped.
#[derive(Debug)]
pub struct OpenBreaker(());

/// Counts that calls to a server fail at once from now on.
pub fn redis_breaker_opened() -> OpenBreaker {
    OPENINGS.increment(1);
    OPEN.increment(1);
    OpenBreaker(())
}

impl Drop for OpenBreaker {
    fn drop(&mut self) {
        OPEN.decrement(1);
    }
}

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
