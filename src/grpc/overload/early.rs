//! Admission of calls before HTTP/2 reads them.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use super::{AdmissionControl, NEGLIGIBLE_DELAY, QUEUES};
use crate::{grpc::deadline, net::read_budget::ReadBudget};

/// Largest expected time to a response at which a call is left to HTTP/2, in percent of the caller's timeout. Below that
/// at which a call is rejected there, since the estimate is made earlier and a rejection costs more.
const EARLY_PERCENT: u32 = 40;

/// Admission of the calls of one connection.
#[derive(Debug)]
pub(in crate::grpc) struct EarlyAdmission {
    control: Arc<AdmissionControl>,
    read_budget: ReadBudget,
    /// Calls that were left to HTTP/2 in the poll with the number `poll`, and are not counted as active yet.
    admitted: u32,
    poll: usize,
    /// Expected time to the response of the next call, less that of the admitted ones, since the latest read.
    expected: Option<Duration>,
    /// Whether a call of the latest read was refused.
    has_refused: bool,
}

impl EarlyAdmission {
    pub(in crate::grpc) const fn new(control: Arc<AdmissionControl>, read_budget: ReadBudget) -> Self {
        Self { control, read_budget, admitted: 0, poll: 0, expected: None, has_refused: false }
    }

    /// Begins a read.
    pub(in crate::grpc) fn begin_read(&mut self) {
        (self.expected, self.has_refused) = (None, false);
        let poll = self.read_budget.number();
        if self.poll != poll {
            (self.poll, self.admitted) = (poll, 0);
        }
    }

    /// Whether to refuse a call with a timeout, that was just read.
    pub(in crate::grpc) fn refuses(&mut self, timeout: Option<Duration>) -> bool {
        self.refuses_at(timeout, Instant::now)
    }

    pub(super) fn refuses_at(&mut self, timeout: Option<Duration>, now: impl FnOnce() -> Instant) -> bool {
        timeout.is_some_and(|timeout| self.is_late(timeout, now))
    }

    /// Counts a call that was left to HTTP/2.
    pub(in crate::grpc) const fn admitted(&mut self) {
        self.admitted = self.admitted.saturating_add(1);
    }

    fn is_late(&mut self, timeout: Duration, now: impl FnOnce() -> Instant) -> bool {
        let (control, read_budget) = (&self.control, &self.read_budget);
        let expected = *self.expected.get_or_insert_with(|| control.expected(read_budget, now()));
        let cost = Duration::from_nanos(control.call_cost.load(Ordering::Relaxed));
        let expected = cost.saturating_mul(self.admitted.saturating_mul(QUEUES)).saturating_add(expected);
        let is_late = expected >= NEGLIGIBLE_DELAY && expected > deadline::percent_of(timeout, EARLY_PERCENT);
        if is_late && !self.has_refused {
            self.has_refused = true;
            control.warn(expected);
        }
        is_late
    }
}
