//! Timer of one connection, whose clock is read once in each poll of its task.

use std::{
    pin::Pin,
    time::{Duration, Instant},
};

use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;

use super::ReadBudget;

/// Timer for HTTP/2, which notes the time of every frame for its keepalive: by the time at which the poll began that reads
/// the frame.
#[derive(Clone, Debug)]
pub(crate) struct ReadBudgetTimer {
    pub(crate) read_budget: ReadBudget,
    pub(crate) timer: TokioTimer,
}

impl Timer for ReadBudgetTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.timer.sleep(duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.timer.sleep_until(deadline)
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, deadline: Instant) {
        self.timer.reset(sleep, deadline);
    }

    fn now(&self) -> Instant {
        self.read_budget.began_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_at_which_the_poll_began() {
        let timer = ReadBudgetTimer { read_budget: ReadBudget::default(), timer: TokioTimer::new() };
        let opened = timer.now();
        while Instant::now() == opened {}
        assert_eq!(timer.now(), opened, "no poll has begun since");
        timer.read_budget.begin();
        let began = timer.now();
        assert!(began > opened && began <= Instant::now());
    }
}
