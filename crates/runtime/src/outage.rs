//! Decides which failures and recoveries are worth a log line: each outage is logged once, not each failed attempt.
//!
//! The caller writes the line, so that its message stays a constant in the place that knows what failed.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Outages of something that one task attempts.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutageLog {
    is_down: bool,
}

impl OutageLog {
    /// Records a failure; whether it begins an outage.
    #[must_use]
    pub const fn failed(&mut self) -> bool {
        !mem::replace(&mut self.is_down, true)
    }

    /// Records a success; whether it ends an outage.
    #[must_use]
    pub const fn recovered(&mut self) -> bool {
        mem::replace(&mut self.is_down, false)
    }
}

/// Outages of something that many threads use at once, and that may fail now and then.
#[derive(Debug)]
pub struct SharedOutageLog {
    /// Shortest time between two outages that are logged.
    min_gap: Duration,
    /// Time without a failure after which an outage counts as over.
    settle: Duration,
    is_down: AtomicBool,
    times: Mutex<Times>,
}

#[derive(Debug, Default)]
struct Times {
    logged: Option<Instant>,
    failed: Option<Instant>,
}

impl SharedOutageLog {
    /// No outage yet.
    pub const fn new(min_gap: Duration, settle: Duration) -> Self {
        let times = Mutex::new(Times { logged: None, failed: None });
        Self { min_gap, settle, is_down: AtomicBool::new(false), times }
    }

    /// Records a failure; whether it begins an outage that is to be logged.
    #[must_use]
    pub fn failed(&self) -> bool {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.failed = Some(Instant::now());
        let is_due = times.logged.is_none_or(|logged| logged.elapsed() >= self.min_gap);
        let begins = is_due && !self.is_down.swap(true, Ordering::Relaxed);
        if begins {
            times.logged = times.failed;
        }
        begins
    }

    /// Records a success; whether it ends an outage.
    #[must_use]
    pub fn recovered(&self) -> bool {
        // A plain read first: most calls change nothing.
        if !self.is_down.load(Ordering::Relaxed) {
            return false;
        }
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let is_settled = times.failed.is_none_or(|failed| failed.elapsed() >= self.settle);
        is_settled && self.is_down.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_logged_when_it_begins_and_when_it_ends() {
        let mut log = OutageLog::default();
        assert!(!log.recovered());
        assert!(log.failed() && !log.failed() && log.is_down);
        assert!(log.recovered() && !log.recovered() && !log.is_down);
    }

    #[test]
    fn a_shared_outage_ends_once_it_has_settled() {
        let log = SharedOutageLog::new(Duration::ZERO, Duration::ZERO);
        assert!(log.failed() && !log.failed());
        assert!(log.recovered() && !log.recovered());
        let slow = SharedOutageLog::new(Duration::ZERO, Duration::from_secs(3_600));
        assert!(slow.failed() && !slow.recovered());
    }

    #[test]
    fn outages_in_quick_succession_are_logged_once() {
        let log = SharedOutageLog::new(Duration::from_secs(3_600), Duration::ZERO);
        assert!(log.failed() && log.recovered());
        assert!(!log.failed() && !log.recovered());
    }
}
