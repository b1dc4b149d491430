//! Ends of bans before their time.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Early ends in this process.
pub(super) static EARLY_ENDS: EarlyEnds = EarlyEnds::new();

/// A time in this process, before those that are recorded.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Makes every worker of this process call the server again before it uses a cached ban: bans may have been lifted, or
/// their rules have changed.
pub fn recheck_bans() {
    let start = *START;
    EARLY_ENDS.record(start, Instant::now());
}

/// The last time at which bans may have ended early.
#[derive(Debug)]
pub(super) struct EarlyEnds {
    /// Microseconds after the start, rounded up; 0 for never.
    micros: AtomicU64,
}

impl EarlyEnds {
    const fn new() -> Self {
        Self { micros: AtomicU64::new(0) }
    }

    fn record(&self, start: Instant, now: Instant) {
        let micros = u64::try_from(now.saturating_duration_since(start).as_micros()).unwrap_or(u64::MAX);
        self.micros.store(micros.saturating_add(1), Ordering::Relaxed);
    }

    /// Whether a ban that was noted at `noted_at` may have ended early since.
    pub(super) fn may_concern(&self, noted_at: Instant) -> bool {
        match self.micros.load(Ordering::Relaxed) {
            0 => false,
            micros => START.checked_add(Duration::from_micros(micros)).is_none_or(|last| noted_at <= last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ban_is_believed_if_it_was_noted_after_the_last_early_end() {
        let (ends, start) = (EarlyEnds::new(), *START);
        let after = |millis| start + Duration::from_millis(millis);
        assert!(!ends.may_concern(after(0)), "none ended");
        for last in [5, 9] {
            ends.record(start, after(last));
            assert!(ends.may_concern(after(0)) && ends.may_concern(after(last)));
            assert!(!ends.may_concern(after(last + 1)));
        }
    }
}
