//! Shares of a limit whose use operators are notified of.

use std::fmt;

/// Percentages of a limit, ascending and distinct: 1 to [`Self::MAX_THRESHOLDS`] of them, each 1 to
/// [`Self::MAX_PERCENT`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyThresholds(Box<[u16]>);

impl NotifyThresholds {
    /// Maximum number of thresholds of a limit.
    pub const MAX_THRESHOLDS: usize = 10;

    /// Maximum percentage: charges beyond the limit count too, with an overdraft.
    pub const MAX_PERCENT: u16 = 1_000;

    /// Returns the thresholds of these percentages; `None` if there are none, too many, or one is out of range.
    pub fn new(percentages: impl IntoIterator<Item = u16>) -> Option<Self> {
        let mut percentages: Vec<u16> = percentages.into_iter().collect();
        percentages.sort_unstable();
        percentages.dedup();
        let is_valid = (1..=Self::MAX_THRESHOLDS).contains(&percentages.len())
            && percentages.iter().all(|percent| (1..=Self::MAX_PERCENT).contains(percent));
        is_valid.then(|| Self(percentages.into()))
    }

    /// Percentages, ascending.
    pub fn percentages(&self) -> &[u16] {
        &self.0
    }

    /// Number of thresholds that `used` hits of `limit` have reached: the first ones. A limit of 0 has none to reach.
    pub fn reached(&self, used: u64, limit: u64) -> usize {
        if limit == 0 {
            return 0;
        }
        let used = u128::from(used).saturating_mul(100);
        let has_reached = |percent: &u16| u128::from(limit).saturating_mul((*percent).into()) <= used;
        self.0.iter().take_while(|percent| has_reached(percent)).count()
    }
}

impl fmt::Display for NotifyThresholds {
    /// Percentages joined by commas, such as `50%, 100%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, percent) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{percent}%")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn thresholds_are_sorted_distinct_and_bounded() {
        let thresholds = NotifyThresholds::new([100, 50, 80, 50]).expect("valid");
        assert_eq!(thresholds.percentages(), [50, 80, 100]);
        assert_eq!(thresholds.to_string(), "50%, 80%, 100%");
        for invalid in [vec![], vec![0], vec![1_001], (1..=11).collect()] {
            assert_eq!(NotifyThresholds::new(invalid), None);
        }
    }

    proptest! {
        #[test]
        fn a_threshold_is_reached_by_its_share_of_the_limit_and_not_by_a_hit_less(
            percent in 1_u16..=1_000,
            limit in 1_u64..1 << 53,
        ) {
            let thresholds = NotifyThresholds::new([percent]).expect("valid");
            let share = (u128::from(limit) * u128::from(percent)).div_ceil(100);
            let share = u64::try_from(share).expect("fits");
            prop_assert_eq!((thresholds.reached(share - 1, limit), thresholds.reached(share, limit)), (0, 1));
            prop_assert_eq!(thresholds.reached(u64::MAX, 0), 0);
        }
    }
}
