//! For which key a request is: all alike, or some more often than others.

#![allow(clippy::float_arithmetic)] // Chances are fractions.

use fastrand::Rng;

/// Draws keys, numbered from 0.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keys {
    /// All alike.
    Uniform(usize),
    /// Key 0 is the most frequent.
    Zipf(Zipf),
}

impl Keys {
    /// `count` keys under a Zipf distribution with that exponent; all alike if it is 0.
    pub(super) fn new(count: usize, exponent: f64) -> Self {
        match exponent > 0.0 {
            true => Self::Zipf(Zipf::new(count, exponent)),
            false => Self::Uniform(count.max(1)),
        }
    }

    pub(super) fn draw(&self, random: &mut Rng) -> usize {
        match self {
            Self::Uniform(count) => random.usize(..count),
            Self::Zipf(zipf) => zipf.draw(random),
        }
    }
}

/// The chance of rank k, from 1, is proportional to `k^-exponent`.
///
/// Drawn by rejection-inversion (Hörmann and Derflinger, 1996), in constant time and without a table: a point is
/// drawn under the curve `x^-exponent`, whose integral can be inverted, rounded to a rank, and rejected in the rare
/// case that it lies outside of that rank's share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zipf {
    count: f64,
    exponent: f64,
    /// The integral at both ends of what is drawn from.
    from: f64,
    to: f64,
    /// A point no farther than this below its rank is accepted at once.
    sure: f64,
}

impl Zipf {
    fn new(count: usize, exponent: f64) -> Self {
        let mut zipf = Self { count: count.max(1) as f64, exponent, from: 0.0, to: 0.0, sure: 0.0 };
        zipf.from = zipf.integral(1.5) - 1.0;
        zipf.to = zipf.integral(zipf.count + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.curve(2.0));
        zipf
    }

    fn draw(&self, random: &mut Rng) -> usize {
        loop {
            let area = self.to + random.f64() * (self.from - self.to);
            let point = self.inverse(area);
            let rank = point.round().clamp(1.0, self.count);
            if rank - point <= self.sure || area >= self.integral(rank + 0.5) - self.curve(rank) {
                // A whole number between 1 and the count.
                return (rank - 1.0) as usize;
            }
        }
    }

    fn curve(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    /// The integral of the curve from 1 to `x`: `(x^(1 - s) - 1) / (1 - s)`, or `ln x` where s is 1.
    fn integral(&self, x: f64) -> f64 {
        let power = (1.0 - self.exponent) * x.ln();
        match power.abs() < 1e-8 {
            true => x.ln() * (1.0 + power / 2.0),
            false => x.ln() * power.exp_m1() / power,
        }
    }

    fn inverse(&self, area: f64) -> f64 {
        // Rounding may put it below the least value that has a logarithm.
        let power = (area * (1.0 - self.exponent)).max(-1.0);
        match power.abs() < 1e-8 {
            true => (area * (1.0 - power / 2.0)).exp(),
            false => (area * power.ln_1p() / power).exp(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 200_000;

    fn shares(keys: &Keys, count: usize) -> Vec<f64> {
        let mut random = Rng::with_seed(7);
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
    fn without_an_exponent_all_keys_are_alike() {
        assert_near(&shares(&Keys::new(100, 0.0), 100), &[0.01; 100], "uniform");
    }

    #[test]
    fn the_same_seed_draws_the_same_keys() {
        let draw = |seed| {
            let mut random = Rng::with_seed(seed);
            (0..100).map(|_| Keys::new(1000, 1.1).draw(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
