//! Counters of the exporter that are read here too.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use metrics::{Counter, CounterFn, counter};

use super::striped::Striped;

/// A counter that every decision may add to.
pub(super) struct Readable {
    counters: Arc<Striped<1>>,
    published: Arc<Published>,
}

/// What was published of it, there and here.
struct Published {
    exported: Counter,
    count: AtomicU64,
}

impl CounterFn for Published {
    fn increment(&self, value: u64) {
        self.exported.increment(value);
        self.count.fetch_add(value, Ordering::Relaxed);
    }

    /// Nobody knows by how much it grows.
    fn absolute(&self, _value: u64) {}
}

impl Readable {
    /// One of that name.
    pub(super) fn new(name: &'static str) -> Self {
        let published = Arc::new(Published { exported: counter!(name), count: AtomicU64::new(0) });
        Self { counters: Striped::new([Counter::from_arc(Arc::clone(&published))]), published }
    }

    pub(super) fn increment(&self) {
        self.counters.increment(0);
    }

    /// What was counted, as of the last time that counts were published.
    pub(super) fn so_far(&self) -> u64 {
        self.published.count.load(Ordering::Relaxed)
    }
}
