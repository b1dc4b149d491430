//! Series that made room for others before all of what they counted was told to who takes changes.

use std::sync::Arc;

use parking_lot::Mutex;

use super::series::{KINDS, Series};

/// Series at the most that wait to be told: as many as find room at a time. What is beyond is lost.
const MOST: usize = 12_000;

/// Those that wait; none while nobody takes changes.
static WAITING: Mutex<Option<Vec<Arc<Series>>>> = Mutex::new(None);

/// From now on somebody takes changes.
pub(super) fn keep() {
    WAITING.lock().get_or_insert_default();
}

/// Keeps those of the series that have something to tell.
pub(super) fn note(gone: Vec<Arc<Series>>) {
    if let Some(waiting) = &mut *WAITING.lock() {
        let room = MOST.saturating_sub(waiting.len());
        waiting.extend(gone.into_iter().filter(has_more).take(room));
    }
}

/// Those that still have something to tell.
pub(super) fn all() -> Vec<Arc<Series>> {
    let mut waiting = WAITING.lock();
    let Some(waiting) = &mut *waiting else { return Vec::new() };
    waiting.retain(has_more);
    waiting.clone()
}

fn has_more(series: &Arc<Series>) -> bool {
    series.untold() != [0; KINDS]
}
