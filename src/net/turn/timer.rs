//! Timer of one connection, whose clock is read once in a turn.

use std::{
    pin::Pin,
    time::{Duration, Instant},
};

use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;

use super::Turns;

/// Timer for HTTP/2, which notes the time of every frame for its keepalive: by the time at which the turn began that reads
/// the frame.
#[derive(Clone, Debug)]
pub(crate) struct TurnTimer {
    pub(crate) turns: Turns,
    pub(crate) timer: TokioTimer,
}

impl Timer for TurnTimer {
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
        self.turns.began_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_at_which_the_turn_began() {
        let timer = TurnTimer { turns: Turns::default(), timer: TokioTimer::new() };
        let opened = timer.now();
        while Instant::now() == opened {}
        assert_eq!(timer.now(), opened, "no turn has begun since");
        timer.turns.begin();
        let began = timer.now();
        assert!(began > opened && began <= Instant::now());
    }
}
