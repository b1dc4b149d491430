//! Bound of the asks that an instance sends.

/// Asks per second of one instance; beyond, shares stay as they are.
const MAX_ASKS_PER_SECOND: u64 = 2_000;

/// Bucket of asks: one second's worth, refilled continuously.
#[derive(Clone, Copy, Debug)]
pub struct AskBudget {
    /// Asks left, in millionths.
    left: u64,
    refilled_at: u64,
}

impl AskBudget {
    /// Returns a full budget at `micros`.
    pub const fn new(micros: u64) -> Self {
        Self { left: MAX_ASKS_PER_SECOND.saturating_mul(1_000_000), refilled_at: micros }
    }

    /// Takes one ask, if one is left.
    pub fn take(&mut self, micros: u64) -> bool {
        let gained = micros.saturating_sub(self.refilled_at).saturating_mul(MAX_ASKS_PER_SECOND);
        self.left = self.left.saturating_add(gained).min(MAX_ASKS_PER_SECOND.saturating_mul(1_000_000));
        self.refilled_at = micros;
        let is_left = self.left >= 1_000_000;
        if is_left {
            self.left = self.left.saturating_sub(1_000_000);
        }
        is_left
    }
}
