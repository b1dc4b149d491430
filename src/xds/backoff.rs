//! The pauses between attempts.

use std::time::Duration;

use crate::settings::BackoffSettings;

/// Doubles from the first pause to the longest one.
#[derive(Debug)]
pub(super) struct Backoff {
    settings: BackoffSettings,
    next: Duration,
}

impl Backoff {
    pub(super) const fn new(settings: BackoffSettings) -> Self {
        Self { settings, next: settings.initial }
    }

    /// The next pause; of the share that is left to it, `chance` takes a part that it picks up to the whole, in
    /// microseconds.
    pub(super) fn pause(&mut self, chance: impl Fn(u64) -> u64) -> Duration {
        let whole = self.next;
        self.next = whole.saturating_mul(2).min(self.settings.max);
        let share = whole.mul_f64(self.settings.jitter.clamp(0.0, 1.0));
        let share = u64::try_from(share.as_micros()).unwrap_or(u64::MAX);
        whole.saturating_sub(Duration::from_micros(chance(share).min(share)))
    }

    /// Begins anew.
    pub(super) const fn reset(&mut self) {
        self.next = self.settings.initial;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: BackoffSettings =
        BackoffSettings { initial: Duration::from_millis(500), max: Duration::from_secs(3), jitter: 0.5 };

    #[test]
    fn pauses_double_up_to_the_longest_one_and_begin_anew() {
        let mut backoff = Backoff::new(SETTINGS);
        let pauses: Vec<u128> = (0..5).map(|_| backoff.pause(|_| 0).as_millis()).collect();
        assert_eq!(pauses, [500, 1_000, 2_000, 3_000, 3_000]);
        backoff.reset();
        assert_eq!(backoff.pause(|_| 0).as_millis(), 500);
    }

    #[test]
    fn chance_takes_no_more_than_its_share() {
        let mut backoff = Backoff::new(SETTINGS);
        assert_eq!(backoff.pause(|most| most).as_millis(), 250);
        assert_eq!(backoff.pause(|_| u64::MAX).as_millis(), 500);
        let mut steady = Backoff::new(BackoffSettings { jitter: 0.0, ..SETTINGS });
        assert_eq!(steady.pause(|most| most).as_millis(), 500);
    }
}
