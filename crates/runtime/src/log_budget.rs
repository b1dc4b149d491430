//! Bounds the lines that another server can cause in the log: some at once, and then one at intervals.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A budget of log lines, shared by all that log the same kind of event.
#[derive(Debug)]
pub struct LogBudget {
    /// Lines that may be logged at once.
    burst: u32,
    /// Time that one more line takes.
    interval: Duration,
    state: Mutex<BudgetState>,
}

#[derive(Debug)]
struct BudgetState {
    spent: u32,
    /// Time from which the next line is earned.
    since: Option<Instant>,
    suppressed: u64,
}

impl LogBudget {
    /// A budget of `burst` lines, and another one every `interval`.
    pub const fn new(burst: u32, interval: Duration) -> Self {
        Self { burst, interval, state: Mutex::new(BudgetState { spent: 0, since: None, suppressed: 0 }) }
    }

    /// Takes a line from the budget. Returns how many lines were suppressed since the last one that was logged, or `None`
    /// if this one is suppressed as well.
    #[must_use]
    pub fn take(&self) -> Option<u64> {
        self.take_at(Instant::now())
    }

    fn take_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let since = state.since.unwrap_or(now);
        let elapsed = now.saturating_duration_since(since).as_nanos();
        let earned = elapsed.checked_div(self.interval.as_nanos()).unwrap_or_default();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        state.spent = state.spent.saturating_sub(earned);
        let at = self.interval.checked_mul(earned).and_then(|time| since.checked_add(time));
        state.since = Some(if state.spent == 0 { now } else { at.unwrap_or(now) });
        if state.spent >= self.burst {
            state.suppressed = state.suppressed.saturating_add(1);
            return None;
        }
        state.spent = state.spent.saturating_add(1);
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_budget_are_suppressed_and_counted() {
        let budget = LogBudget::new(3, Duration::from_secs(5));
        let start = Instant::now();
        let take = |millis: u64| budget.take_at(start + Duration::from_millis(millis));
        assert_eq!([0, 0, 1, 2, 3].map(take), [Some(0), Some(0), Some(0), None, None]);
        assert_eq!([4_999, 5_000, 5_001].map(take), [None, Some(3), None]);
        // The fraction of an interval is kept.
        assert_eq!([9_999, 10_000, 10_001].map(take), [None, Some(2), None]);
        // After a quiet time, the whole burst is there again, and no more.
        assert_eq!([3_600_000; 4].map(take), [Some(1), Some(0), Some(0), None]);
    }
}
