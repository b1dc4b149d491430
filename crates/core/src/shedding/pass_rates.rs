//! The probability with which a request of each priority passes.

use super::Priority;

/// Probabilities of passing, one for each priority, in 1/65,535.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassRates([u16; Priority::COUNT]);

impl Default for PassRates {
    fn default() -> Self {
        Self::OPEN
    }
}

impl PassRates {
    /// All requests pass.
    pub const OPEN: Self = Self([u16::MAX; Priority::COUNT]);

    /// Returns the rates with which the part `passed` of all requests passes, if these shares of them have each priority:
    /// requests of a higher priority first, and the part `floor` of each.
    #[allow(clippy::float_arithmetic)] // Probabilities.
    pub fn of(passed: f64, shares: [f64; Priority::COUNT], floor: f64) -> Self {
        let floor = floor.clamp(0.0, 1.0);
        if passed >= 1.0 {
            return Self::OPEN;
        }
        let mut left = (passed - floor * shares.iter().sum::<f64>()).max(0.0);
        Self(shares.map(|share| {
            let above_floor = share * (1.0 - floor);
            let taken = left.min(above_floor);
            // Where no requests are known, there is room for one unless higher priorities have taken all of it.
            let part = match above_floor > 0.0 {
                true => taken / above_floor,
                false => f64::from(u8::from(left > 0.0)),
            };
            left -= taken;
            // Rounded up, so that the floor is one; a cast saturates.
            ((floor + part * (1.0 - floor)) * f64::from(u16::MAX)).ceil() as u16
        }))
    }

    /// The rate of a priority, 0 to 1.
    #[allow(clippy::float_arithmetic)]
    pub fn of_priority(self, priority: Priority) -> f64 {
        f64::from(self.threshold(priority)) / f64::from(u16::MAX)
    }

    /// Whether a request passes, given a random number.
    pub fn admits(self, priority: Priority, random: u16) -> bool {
        let threshold = self.threshold(priority);
        threshold == u16::MAX || random < threshold
    }

    /// The part of all requests that passes, if these shares of them have each priority.
    #[allow(clippy::float_arithmetic)]
    pub fn passed_part(self, shares: [f64; Priority::COUNT]) -> f64 {
        let rates = Priority::ALL.map(|priority| self.of_priority(priority));
        rates.into_iter().zip(shares).map(|(rate, share)| rate * share).sum()
    }

    fn threshold(self, priority: Priority) -> u16 {
        let Self([critical, high, default, low]) = self;
        match priority {
            Priority::Critical => critical,
            Priority::High => high,
            Priority::Default => default,
            Priority::Low => low,
        }
    }

    /// The rates in one word.
    pub(super) fn to_word(self) -> u64 {
        self.0.into_iter().fold(0, |word, rate| word << 16 | u64::from(rate))
    }

    /// The rates of a word.
    #[allow(clippy::cast_possible_truncation)] // Each takes the lowest 16 bits.
    pub(super) const fn from_word(word: u64) -> Self {
        Self([(word >> 48) as u16, (word >> 32) as u16, (word >> 16) as u16, word as u16])
    }
}
