//! Chance, so that workers and instances don't all do the same at the same time.

use std::time::Duration;

/// `time` and up to a quarter more.
pub(in crate::store) fn jittered(time: Duration) -> Duration {
    let part = time.saturating_mul(fastrand::u32(0..256)).checked_div(1024).unwrap_or_default();
    time.saturating_add(part)
}

/// Between half of `time` and one and a half times as much.
pub(in crate::store) fn spread(time: Duration) -> Duration {
    let parts = time.saturating_mul(fastrand::u32(512..1536));
    parts.checked_div(1024).unwrap_or(time)
}
