//! Rate of the hits of clients, admitted or not.

/// Length of a period in microseconds.
const PERIOD_MICROS: u64 = 2_000_000;

/// Hits of this period of two seconds and of the one before: their weighted sum is a moving average, as in a sliding
/// window. For permits, only denied ones are counted, as held ones are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Number of the period since the epoch.
    pub period: u32,
    /// Hits in it.
    pub count: u32,
    /// Hits in the one before.
    pub previous: u32,
}

impl Demand {
    /// Counts hits.
    pub fn add(&mut self, micros: u64, hits: u32) {
        *self = self.at(micros);
        self.count = self.count.saturating_add(hits);
    }

    /// Hits of the last two seconds.
    pub fn rate(&self, micros: u64) -> u64 {
        let Self { count, previous, .. } = self.at(micros);
        let left = PERIOD_MICROS.saturating_sub(micros % PERIOD_MICROS);
        (u64::from(previous).saturating_mul(left) / PERIOD_MICROS).saturating_add(count.into())
    }

    /// Hits that arrive in `span` microseconds at this rate.
    pub fn within(&self, micros: u64, span: u64) -> u64 {
        // In milliseconds, so that the product is exact in Lua.
        self.rate(micros).saturating_mul(span / 1_000) / (PERIOD_MICROS / 1_000)
    }

    /// The counts as of a time. After a step back of the clock they stay.
    fn at(&self, micros: u64) -> Self {
        let period = u32::try_from(micros / PERIOD_MICROS).unwrap_or(u32::MAX);
        match period.saturating_sub(self.period) {
            0 => *self,
            1 => Self { period, count: 0, previous: self.count },
            _ => Self { period, ..Self::default() },
        }
    }
}
