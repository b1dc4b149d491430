//! Weights of the values of a descriptor: hits that one hit counts as.

use std::{collections::HashMap, num::NonZeroU64};

use foldhash::quality::RandomState;
use tollgate_core::descriptor::{Entry, Hits};

/// Weights of a rule's hits by the value of its last entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    by_value: HashMap<Box<str>, u32, RandomState>,
    /// Weight of other values.
    others: u32,
}

impl Weights {
    /// Maximum weight.
    pub const MAX: u32 = 1_000_000;

    /// Maximum number of values.
    pub const MAX_VALUES: usize = 10_000;

    /// Weights of these values, and that of all others.
    pub fn new(by_value: impl IntoIterator<Item = (Box<str>, u32)>, others: u32) -> Self {
        Self { by_value: by_value.into_iter().collect(), others }
    }

    /// Number of values with a weight of their own.
    pub fn values(&self) -> usize {
        self.by_value.len()
    }

    /// The values with a weight of their own, sorted, and their weights.
    pub fn sorted(&self) -> Vec<(&str, u32)> {
        let mut weights: Vec<_> = self.by_value.iter().map(|(value, weight)| (&**value, *weight)).collect();
        weights.sort_unstable();
        weights
    }

    /// Weight of all other values.
    pub const fn others(&self) -> u32 {
        self.others
    }

    /// The hits that count: charges and refunds multiplied by the weight of the value. A weight of 0 makes a read of them.
    pub fn weigh(&self, hits: Hits, entries: &[Entry<'_>]) -> Hits {
        let by_value = entries.last().and_then(|entry| self.by_value.get(entry.value));
        let weight = u64::from(by_value.copied().unwrap_or(self.others));
        let weighed = |amount: NonZeroU64| amount.get().saturating_mul(weight);
        match hits {
            Hits::Charge(amount) => Hits::charge(weighed(amount)),
            Hits::Refund(amount) if amount.get() < Hits::MAX => Hits::refund(weighed(amount)),
            // A reset refunds all; the others are not what a request states.
            hits => hits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_multiplied_by_the_weight_of_the_last_value() {
        let weights = Weights::new([("large".into(), 3), ("free".into(), 0)], 1);
        let entries = |value| [Entry { key: "team", value: "large" }, Entry { key: "model", value }];
        let weigh = |hits, value| weights.weigh(hits, &entries(value));
        assert_eq!(weigh(Hits::charge(7), "large"), Hits::charge(21));
        assert_eq!(weigh(Hits::refund(7), "large"), Hits::refund(21));
        assert_eq!(weigh(Hits::charge(7), "small"), Hits::charge(7));
        assert_eq!(weigh(Hits::charge(7), "free"), Hits::Peek);
        assert_eq!(weigh(Hits::charge(u64::MAX), "large"), Hits::charge(Hits::MAX));
        for hits in [Hits::Peek, Hits::reset()] {
            assert_eq!(weigh(hits, "large"), hits);
        }
    }
}
