//! Exponential backoff with jitter, so that workers and replicas do not retry in step.

use std::time::Duration;

/// Part of a pause that jitter may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Jitter {
    /// Pauses are as long as stated.
    None,
    /// Up to a quarter is added, so that no pause is shorter than stated.
    Lengthen,
    /// Up to this share, from 0 to 1, is taken off, so that no pause is longer than stated.
    Shorten(f64),
}

/// Pauses between attempts: each is twice as long as the one before, up to a maximum.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
    jitter: Jitter,
    next: Duration,
}

impl Backoff {
    /// Pauses from `initial` to `max`, each lengthened by jitter.
    pub const fn new(initial: Duration, max: Duration) -> Self {
        Self::with_jitter(initial, max, Jitter::Lengthen)
    }

    /// Pauses from `initial` to `max` with this jitter.
    pub const fn with_jitter(initial: Duration, max: Duration, jitter: Jitter) -> Self {
        Self { initial, max, jitter, next: initial }
    }

    /// Returns the next pause.
    pub fn pause(&mut self) -> Duration {
        self.pause_with(|max| fastrand::u64(..=max))
    }

    /// Returns the next pause; `random` returns a number of microseconds from 0 to its argument.
    fn pause_with(&mut self, random: impl FnOnce(u64) -> u64) -> Duration {
        let stated = self.next;
        self.next = stated.saturating_mul(2).min(self.max);
        let part = |range: Duration| {
            let range = u64::try_from(range.as_micros()).unwrap_or(u64::MAX);
            Duration::from_micros(random(range).min(range))
        };
        match self.jitter {
            Jitter::None => stated,
            Jitter::Lengthen => stated.saturating_add(part(stated.checked_div(4).unwrap_or_default())),
            Jitter::Shorten(share) => stated.saturating_sub(part(stated.mul_f64(share.clamp(0.0, 1.0)))),
        }
    }

    /// Starts again with the initial pause.
    pub const fn reset(&mut self) {
        self.next = self.initial;
    }
}

/// `time` and up to a quarter more.
pub fn lengthened(time: Duration) -> Duration {
    Backoff::new(time, time).pause()
}

/// `time` and up to `percent` % more or less.
pub fn around(time: Duration, percent: u32) -> Duration {
    let most = time.saturating_mul(percent.saturating_mul(2)).checked_div(100).unwrap_or(time);
    let least = time.saturating_mul(100_u32.saturating_sub(percent)).checked_div(100).unwrap_or(time);
    let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    least.saturating_add(Duration::from_nanos(fastrand::u64(0..=nanos)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INITIAL: Duration = Duration::from_millis(500);
    const MAX: Duration = Duration::from_secs(3);

    #[test]
    fn pauses_double_up_to_the_maximum_and_start_again_after_a_reset() {
        let mut backoff = Backoff::new(INITIAL, MAX);
        let pauses: Vec<u128> = (0..5).map(|_| backoff.pause_with(|_| 0).as_millis()).collect();
        assert_eq!(pauses, [500, 1_000, 2_000, 3_000, 3_000]);
        backoff.reset();
        assert_eq!(backoff.pause_with(|_| 0).as_millis(), 500);
    }

    #[test]
    fn jitter_stays_within_its_share() {
        let mut lengthen = Backoff::new(INITIAL, MAX);
        assert_eq!(lengthen.pause_with(|max| max).as_millis(), 625);
        let mut shorten = Backoff::with_jitter(INITIAL, MAX, Jitter::Shorten(0.5));
        assert_eq!(shorten.pause_with(|max| max).as_millis(), 250);
        assert_eq!(shorten.pause_with(|_| u64::MAX).as_millis(), 500);
        let mut steady = Backoff::with_jitter(INITIAL, MAX, Jitter::None);
        assert_eq!(steady.pause_with(|max| max).as_millis(), 500);
    }

    #[test]
    fn around_stays_within_its_share_on_both_sides() {
        let time = Duration::from_secs(100);
        let times: Vec<_> = (0..200).map(|_| around(time, 10)).collect();
        assert!(times.iter().all(|time| (90..=110).contains(&time.as_secs())));
        assert!(times.iter().any(|other| *other != times[0]));
    }
}
