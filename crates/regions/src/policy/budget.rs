//! Bound of the loan requests between this region and each other one.

use std::collections::BTreeMap;

use crate::table::{MAX_REGIONS, RegionName};

/// Loan requests per second to or from one region; beyond, shares stay as they are.
const MAX_REQUESTS_PER_SECOND: u64 = 2_000;

/// One loan request, in millionths.
const ONE_REQUEST: u64 = 1_000_000;

/// Buckets of loan requests: one second's worth for each region, refilled continuously, so that no region uses up those of
/// another.
#[derive(Clone, Debug, Default)]
pub struct LoanRequestBudgets {
    by_region: BTreeMap<RegionName, LoanRequestBudget>,
}

#[derive(Clone, Copy, Debug)]
struct LoanRequestBudget {
    left: u64,
    refilled_at: u64,
}

impl LoanRequestBudgets {
    /// Takes one request of a region at `micros`, if one is left.
    pub fn take(&mut self, region: &RegionName, micros: u64) -> bool {
        if self.by_region.len() >= MAX_REGIONS && !self.by_region.contains_key(region) {
            // Of regions that were dropped from the table.
            self.by_region.retain(|_, budget| !budget.is_full_at(micros));
            if self.by_region.len() >= MAX_REGIONS {
                return false;
            }
        }
        let full = LoanRequestBudget {
            left: MAX_REQUESTS_PER_SECOND.saturating_mul(ONE_REQUEST),
            refilled_at: micros,
        };
        self.by_region.entry(region.clone()).or_insert(full).take(micros)
    }
}

impl LoanRequestBudget {
    fn take(&mut self, micros: u64) -> bool {
        self.left = self.left_at(micros);
        self.refilled_at = micros;
        let left = self.left.checked_sub(ONE_REQUEST);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    fn is_full_at(&self, micros: u64) -> bool {
        self.left_at(micros) >= MAX_REQUESTS_PER_SECOND.saturating_mul(ONE_REQUEST)
    }

    fn left_at(&self, micros: u64) -> u64 {
        let gained = micros.saturating_sub(self.refilled_at).saturating_mul(MAX_REQUESTS_PER_SECOND);
        self.left.saturating_add(gained).min(MAX_REQUESTS_PER_SECOND.saturating_mul(ONE_REQUEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_that_requests_too_often_leaves_the_requests_of_another() {
        let name = |at: usize| format!("r{at}").parse::<RegionName>().expect("a name");
        let mut budgets = LoanRequestBudgets::default();
        let now = 1_700_000_000_000_000;
        let taken = |budgets: &mut LoanRequestBudgets, region, micros| {
            (0..3_000).filter(|_| budgets.take(&name(region), micros)).count()
        };
        assert_eq!([taken(&mut budgets, 0, now), taken(&mut budgets, 1, now)], [2_000, 2_000]);
        assert_eq!(taken(&mut budgets, 0, now + 500_000), 1_000, "refilled in half a second");
        assert_eq!(taken(&mut budgets, 0, now), 0, "a clock that steps back brings none");
        // Regions that were dropped leave their places.
        for region in 2..40 {
            assert!(budgets.take(&name(region), now + 2_000_000 * region as u64), "region {region}");
        }
    }
}
