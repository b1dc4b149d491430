//! Sampling rate: every hit while there are few, otherwise as many as the budget allows.

use fastrand::Rng;

/// Approximate samples of one kind that a thread takes in a tick: 5,000 in a second.
pub(super) const SAMPLES_PER_TICK: u64 = 500;

/// Maximum number of hits that one sample represents.
const MAX_WEIGHT: u64 = 1 << 56;

/// Samples one hit in `stride` at random, so that no traffic pattern can match the sampling.
///
/// All hits are equally likely regardless of earlier ones, so the stride may change at any time and the weights of the
/// samples still add up, on average, to the hits.
#[derive(Debug)]
pub(super) struct SamplingRate {
    stride: u64,
    /// Samples since the last tick, scaled to the current stride.
    taken: u64,
}

impl SamplingRate {
    pub(super) const fn new() -> Self {
        Self { stride: 1, taken: 0 }
    }

    /// Returns the weight of the sample taken of these hits; 0 if none is taken.
    pub(super) fn weigh(&mut self, hits: u64, random: &mut Rng) -> u64 {
        let weight = match self.stride {
            1 => hits,
            stride => {
                // Most calls have one hit, which needs no division.
                let (whole, rest) = match hits < stride {
                    true => (0, hits),
                    false => (
                        hits.checked_div(stride).unwrap_or_default(),
                        hits.checked_rem(stride).unwrap_or_default(),
                    ),
                };
                let is_picked = random.u64(..stride) < rest;
                stride.saturating_mul(whole.saturating_add(u64::from(is_picked)))
            }
        };
        if weight > 0 {
            self.taken = self.taken.saturating_add(1);
            if self.taken >= SAMPLES_PER_TICK {
                // More hits than expected.
                self.stride = self.stride.saturating_mul(2).min(MAX_WEIGHT);
                self.taken = SAMPLES_PER_TICK / 2;
            }
        }
        weight
    }

    /// Sets the rate for the traffic of the last `ticks`, which is expected to continue.
    pub(super) fn advance(&mut self, ticks: u32) {
        let budget = SAMPLES_PER_TICK.saturating_mul(u64::from(ticks.max(1)));
        self.stride = self.stride.saturating_mul(self.taken).div_ceil(budget).clamp(1, MAX_WEIGHT);
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ones(stride: &mut SamplingRate, random: &mut Rng, calls: std::ops::Range<u64>) {
        for _ in calls {
            stride.weigh(1, random);
        }
    }

    #[test]
    fn all_hits_are_sampled_while_there_are_few_and_again_later() {
        let (mut stride, mut random) = (SamplingRate::new(), Rng::with_seed(1));
        for _ in 0..20 {
            (0..SAMPLES_PER_TICK - 1).for_each(|_| assert_eq!(stride.weigh(3, &mut random), 3));
            stride.advance(1);
        }
        ones(&mut stride, &mut random, 0..1_000_000);
        assert!(stride.stride > 100);
        for _ in 0..6 {
            stride.advance(1);
            ones(&mut stride, &mut random, 0..SAMPLES_PER_TICK / 10);
        }
        assert_eq!(stride.stride, 1);
        assert_eq!(stride.weigh(7, &mut random), 7);
        ones(&mut stride, &mut random, 0..1_000_000);
        stride.advance(u32::MAX);
        assert_eq!(stride.stride, 1, "after a long silence");
    }

    #[test]
    fn samples_keep_to_the_budget_and_their_weights_add_up_to_the_hits() {
        for hits in [1, 7, 1_000, 1 << 40] {
            let (mut stride, mut random) = (SamplingRate::new(), Rng::with_seed(2));
            let (mut weights, mut samples, ticks, calls) = (0_u128, 0_u64, 100, 20_000);
            for _ in 0..ticks {
                for _ in 0..calls {
                    let weight = stride.weigh(hits, &mut random);
                    weights += u128::from(weight);
                    samples += u64::from(weight > 0);
                }
                stride.advance(1);
            }
            // The first tick begins with a stride of 1 and adapts.
            assert!(samples < SAMPLES_PER_TICK * (ticks + 30), "{samples} samples of {hits} hits");
            let truth = u128::from(hits) * u128::from(ticks) * calls;
            assert!(weights.abs_diff(truth) < truth / 50, "{weights} for {truth}");
        }
    }

    #[test]
    fn a_call_with_many_hits_is_not_missed_among_those_with_one() {
        let (mut stride, mut random) = (SamplingRate::new(), Rng::with_seed(3));
        ones(&mut stride, &mut random, 0..100_000);
        let weight = stride.weigh(1 << 30, &mut random);
        assert!(weight.abs_diff(1 << 30) <= stride.stride, "{weight}");
    }
}
