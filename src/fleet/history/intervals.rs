//! Numbers of intervals of the clock that all instances share.

use super::INTERVAL_S;

const INTERVAL_MS: u64 = INTERVAL_S.saturating_mul(1_000);

/// Longest distance, in milliseconds, between the middle of a sample and the middle of its interval. Above half an
/// interval, so that a sample that ends near the boundary of two intervals is not counted in one and then in the other.
const MAX_DISTANCE_MS: u64 = INTERVAL_MS.saturating_mul(3).saturating_div(4);

/// Assigns an interval to each sample of an instance.
#[derive(Debug, Default)]
pub(in crate::fleet) struct Intervals {
    last: Option<u64>,
}

impl Intervals {
    /// The interval of a sample that ends at this time: the one after that of the sample before it, unless another one is
    /// much nearer.
    pub(in crate::fleet) fn next(&mut self, end_ms: u64) -> u64 {
        let nearest = Self::at(end_ms);
        let middle = end_ms.saturating_sub(INTERVAL_MS / 2);
        let is_near = |interval: &u64| {
            let its_middle = interval.saturating_mul(INTERVAL_MS).saturating_add(INTERVAL_MS / 2);
            its_middle.abs_diff(middle) <= MAX_DISTANCE_MS
        };
        let following = self.last.map(|last| last.saturating_add(1)).filter(is_near);
        *self.last.insert(following.unwrap_or(nearest))
    }

    /// The interval whose middle is nearest to that of a sample which ends at this time.
    pub(in crate::fleet) const fn at(end_ms: u64) -> u64 {
        end_ms.saturating_sub(INTERVAL_MS / 2).saturating_div(INTERVAL_MS)
    }

    /// The end of an interval, in milliseconds since 1970.
    pub(in crate::fleet) const fn end_ms(interval: u64) -> u64 {
        interval.saturating_add(1).saturating_mul(INTERVAL_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_near_a_boundary_are_in_consecutive_intervals() {
        let mut intervals = Intervals::default();
        let jitter = [0_u64, 3, 1, 4, 0, 2, 5, 1];
        let ends = (1_000..1_100_u64).zip(jitter.into_iter().cycle());
        let numbers: Vec<_> = ends.map(|(at, jitter)| intervals.next(at * 5_000 + 2_498 + jitter)).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    }

    #[test]
    fn a_late_sample_is_in_the_interval_where_it_is() {
        let mut intervals = Intervals::default();
        assert_eq!(intervals.next(50_000), 9);
        assert_eq!(Intervals::end_ms(9), 50_000);
        assert_eq!(intervals.next(80_000), 15);
        // The clock was set back.
        assert_eq!(intervals.next(60_000), 11);
    }

    #[test]
    fn slow_drift_skips_one_interval_at_a_time() {
        let mut intervals = Intervals::default();
        let numbers: Vec<_> = (0..2_000_u64).map(|at| intervals.next(50_000 + at * 5_010)).collect();
        let steps: Vec<_> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(steps.iter().all(|step| (1..=2).contains(step)));
        assert_eq!(steps.iter().filter(|step| **step == 2).count(), 4);
    }
}
