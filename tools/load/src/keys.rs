//! The key of each request: uniform, or drawn from a Zipf distribution.

use rand::{Rng as _, rngs::SmallRng};
use rand_distr::{Distribution as _, Zipf};

/// Draws keys, numbered from 0.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keys {
    /// Every key is equally likely.
    Uniform(usize),
    /// Key 0 is the most frequent.
    Zipf(Zipf<f64>),
}

impl Keys {
    /// `count` keys under a Zipf distribution with that exponent; uniform if it is 0.
    pub(super) fn new(count: usize, exponent: f64) -> Self {
        let count = count.max(1);
        if exponent > 0.0 {
            // The distribution takes any count from 1 and any exponent from 0.
            Zipf::new(count as f64, exponent).map_or(Self::Uniform(count), Self::Zipf)
        } else {
            Self::Uniform(count)
        }
    }

    pub(super) fn draw(&self, random: &mut SmallRng) -> usize {
        match self {
            Self::Uniform(count) => random.random_range(..*count),
            // A whole number between 1 and the count.
            Self::Zipf(zipf) => (zipf.sample(random) as usize).saturating_sub(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    const DRAWS: u32 = 200_000;

    fn shares(keys: &Keys, count: usize) -> Vec<f64> {
        let mut random = SmallRng::seed_from_u64(7);
        let mut drawn = vec![0_u32; count];
        (0..DRAWS).for_each(|_| drawn[keys.draw(&mut random)] += 1);
        drawn.into_iter().map(|times| f64::from(times) / f64::from(DRAWS)).collect()
    }

    fn assert_near(found: &[f64], chances: &[f64], what: &str) {
        for (rank, (found, chance)) in found.iter().zip(chances).enumerate() {
            // Five standard deviations, and two draws.
            let deviation = (chance * (1.0 - chance) / f64::from(DRAWS)).sqrt();
            let allowed = 5.0 * deviation + 2.0 / f64::from(DRAWS);
            assert!((found - chance).abs() <= allowed, "{what}, key {rank}: {found} in place of {chance}");
        }
    }

    #[test]
    fn keys_are_drawn_with_the_chances_of_the_distribution() {
        for count in [1_u32, 2, 10, 1000] {
            for exponent in [0.3, 0.99, 1.0, 1.1, 2.0, 5.0] {
                let keys = Keys::new(count as usize, exponent);
                let weights: Vec<f64> = (1..=count).map(|rank| f64::from(rank).powf(-exponent)).collect();
                let sum: f64 = weights.iter().sum();
                let chances: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
                assert_near(&shares(&keys, count as usize), &chances, &format!("{count} keys, {exponent}"));
            }
        }
    }

    #[test]
    fn without_an_exponent_keys_are_uniform() {
        assert_near(&shares(&Keys::new(100, 0.0), 100), &[0.01; 100], "uniform");
    }

    #[test]
    fn a_seed_determines_the_keys() {
        let draw = |seed| {
            let mut random = SmallRng::seed_from_u64(seed);
            (0..100).map(|_| Keys::new(1000, 1.1).draw(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
