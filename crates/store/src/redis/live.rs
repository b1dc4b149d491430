//! Values of one kind that the workers of this process own, read together.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Weak references to values, each until its owner drops it.
pub(super) struct LiveList<T: ?Sized>(Mutex<Vec<Weak<T>>>);

impl<T: ?Sized> LiveList<T> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Includes a value until it is dropped.
    pub(super) fn add(&self, value: Weak<T>) {
        let mut all = self.0.lock();
        all.retain(|value| value.strong_count() > 0);
        all.push(value);
    }

    /// The values that were not dropped.
    pub(super) fn all(&self) -> Vec<Arc<T>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
