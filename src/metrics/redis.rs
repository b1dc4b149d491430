//! What is counted of calls to Redis, of those that were saved, and of the ways there.

use std::{
    fmt,
    sync::{
        Arc, LazyLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::Mutex;

use super::{
    latency,
    page::{Kind, Page},
    striped::Striped,
};

/// What saves a call to Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A denial that still stands.
    Denial,
    /// Tokens that were charged ahead.
    Lease,
}

static CALLS: LazyLock<Arc<Striped<4>>> = LazyLock::new(|| {
    let series = |way| counter!("tollgate_redis_calls_total", "source" => way);
    Striped::new(["sent", "coalesced", "denial_cache", "lease"].map(series))
});

static COMMANDS: LazyLock<Counter> = LazyLock::new(|| counter!("tollgate_redis_commands_total"));

static OPENINGS: LazyLock<Counter> = LazyLock::new(|| counter!("tollgate_redis_breaker_opened_total"));

static OPEN: LazyLock<Gauge> = LazyLock::new(|| gauge!("tollgate_redis_breakers_open"));

/// The same, for who asks this process: a gauge can't be read.
static OPEN_NOW: AtomicUsize = AtomicUsize::new(0);

/// What a connection to a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// About to be there for the first time.
    Connecting,
    /// There.
    Up,
    /// Lost, or never had.
    Down,
}

/// A worker's connection to a server, counted by what it is until this is dropped.
#[derive(Debug)]
pub struct RedisConnection(Link);

/// What calls wait in.
pub trait Queues: Send + Sync {
    /// Callers that wait to be sent, and calls that were sent and are not answered.
    fn waiting(&self) -> (usize, usize);
}

/// All there are, to be asked when somebody looks.
static QUEUES: Mutex<Vec<Weak<dyn Queues>>> = Mutex::new(Vec::new());

/// A worker's way to a server that is not taken; it is until this is dropped.
#[derive(Debug)]
pub struct OpenBreaker(());

/// Counts that calls to a server fail at once from now on.
pub fn redis_breaker_opened() -> OpenBreaker {
    OPENINGS.increment(1);
    OPEN.increment(1);
    OPEN_NOW.fetch_add(1, Ordering::Relaxed);
    OpenBreaker(())
}

impl Drop for OpenBreaker {
    fn drop(&mut self) {
        OPEN.decrement(1);
        OPEN_NOW.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Ways to servers that are not taken now.
pub fn redis_breakers_open() -> usize {
    OPEN_NOW.load(Ordering::Relaxed)
}

/// Counts a call that was decided without Redis.
pub fn redis_saved(way: Way) {
    CALLS.add(match way {
        Way::Denial => [0, 0, 1, 0],
        Way::Lease => [0, 0, 0, 1],
    });
}

/// Counts commands that are sent, with the calls in each, and other calls that are decided with those because they ask
/// the same.
pub fn redis_sent(commands: impl ExactSizeIterator<Item = usize>, joined: usize) {
    COMMANDS.increment(commands.len() as u64);
    let calls = commands.inspect(|calls| latency::redis_batch(*calls)).fold(0, usize::saturating_add);
    CALLS.add([calls as u64, joined as u64, 0, 0]);
}

impl Link {
    const ALL: [Self; 3] = [Self::Connecting, Self::Up, Self::Down];

    const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Up => "up",
            Self::Down => "down",
        }
    }

    fn gauge(self) -> Gauge {
        gauge!("tollgate_redis_connections", "state" => self.name())
    }
}

impl RedisConnection {
    /// One that is about to be there.
    pub fn begin() -> Self {
        Link::Connecting.gauge().increment(1);
        Self(Link::Connecting)
    }

    /// Counts it as something else.
    pub fn becomes(&mut self, link: Link) {
        link.gauge().increment(1);
        std::mem::replace(&mut self.0, link).gauge().decrement(1);
    }
}

impl Drop for RedisConnection {
    fn drop(&mut self) {
        self.0.gauge().decrement(1);
    }
}

impl fmt::Debug for dyn Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queues")
    }
}

/// Tells of queues, for as long as they are there.
pub fn redis_queues(queues: Weak<dyn Queues>) {
    let mut all = QUEUES.lock();
    all.retain(|queues| queues.strong_count() > 0);
    all.push(queues);
}

/// Has everything begin at zero that is counted of Redis, so that the first of it is seen as a change.
pub(super) fn in_use() {
    LazyLock::force(&CALLS);
    LazyLock::force(&COMMANDS);
    LazyLock::force(&OPENINGS);
    LazyLock::force(&OPEN);
    for link in Link::ALL {
        link.gauge().increment(0);
    }
}

/// Adds what waits to a page.
pub(super) fn write(page: &mut Page) {
    let there: Vec<_> = QUEUES.lock().iter().filter_map(Weak::upgrade).collect();
    let (mut queued, mut sent) = (0_usize, 0_usize);
    for (callers, calls) in there.iter().map(|queues| queues.waiting()) {
        queued = queued.saturating_add(callers);
        sent = sent.saturating_add(calls);
    }
    let mut gauge = |name, help, value| {
        page.begin(name, Kind::Gauge, help);
        page.sample(name, &[], value);
    };
    gauge("tollgate_redis_queued_calls", "Calls that wait to be sent to Redis.", queued);
    gauge("tollgate_redis_calls_in_flight", "Calls that were sent to Redis and not yet answered.", sent);
}
