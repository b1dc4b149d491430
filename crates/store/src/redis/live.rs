//! What the workers of this process have of one kind, while it is in use.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Values that are read together and live as long as their owners.
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
