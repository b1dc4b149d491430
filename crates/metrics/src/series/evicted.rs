//! Evicted series with counts that were not yet exported as deltas.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{KINDS, Series};

/// Maximum number of series that are kept: as many as find room at a time. Further ones are lost.
const MAX_SERIES: usize = 12_000;

/// The series; `None` while deltas are not read.
static KEPT: Mutex<Option<Vec<Arc<Series>>>> = Mutex::new(None);

/// Keeps evicted series from now on.
pub(crate) fn enable() {
    KEPT.lock().get_or_insert_default();
}

/// Keeps those of the series whose counts were not all exported.
pub(crate) fn keep(evicted: Vec<Arc<Series>>) {
    if let Some(kept) = &mut *KEPT.lock() {
        let room = MAX_SERIES.saturating_sub(kept.len());
        kept.extend(evicted.into_iter().filter(has_more).take(room));
    }
}

/// The series whose counts are still not all exported.
pub(crate) fn all() -> Vec<Arc<Series>> {
    let mut kept = KEPT.lock();
    let Some(kept) = &mut *kept else { return Vec::new() };
    kept.retain(has_more);
    kept.clone()
}

fn has_more(series: &Arc<Series>) -> bool {
    series.not_exported() != [0; KINDS]
}
