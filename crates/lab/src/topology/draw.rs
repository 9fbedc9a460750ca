//! Random draws from a seed, which are the same on every machine and in every version.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A seeded random generator with the distributions that the lab needs.
///
/// The distributions are implemented here and not taken from a library, because a recorded seed must give the same
/// network after an update.
#[derive(Clone, Debug)]
pub struct Draws(Xoshiro256PlusPlus);

/// Derives the seed of the part called `label`, so that adding a part does not change the others.
///
/// FNV-1a over the label, then the finaliser of SplitMix64.
pub fn derive_seed(seed: u64, label: &str) -> u64 {
    let fnv = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
    let mut x = label.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, fnv).wrapping_add(seed);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Draws {
    /// Creates the generator of this seed.
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in [low, high).
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Uniform in 0..n; 0 if n is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.uniform() * n as f64) as usize).min(n.saturating_sub(1))
    }

    /// True with probability `p`; draws nothing if `p` is 0.
    pub fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.uniform() < p
    }

    /// Exponential with this mean, by inversion.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }

    /// Pareto with this mean and shape (> 1), by inversion.
    pub fn pareto(&mut self, mean: f64, shape: f64) -> f64 {
        let least = mean * (shape - 1.0) / shape;
        least / (1.0 - self.uniform()).powf(1.0 / shape)
    }

    /// Normal with mean 0 and deviation 1, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Log-normal with this median; `sigma` is the deviation of the natural logarithm.
    pub fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        median * (sigma * self.normal()).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(n: usize, mut draw: impl FnMut() -> f64) -> f64 {
        (0..n).map(|_| draw()).sum::<f64>() / n as f64
    }

    #[test]
    fn distributions_have_their_means() {
        let seed = 7;
        let (n, mut d) = (100_000, Draws::new(seed));
        // Standard errors: 0.0009, 0.0063, 0.0041 (variance of Pareto 3 with mean 2: 4/3), 0.0032.
        let close = |value: f64, want: f64, error: f64| {
            assert!((value - want).abs() < 4.0 * error, "seed {seed}: {value} for {want}");
        };
        close(mean(n, || d.uniform()), 0.5, 0.0009);
        close(mean(n, || d.exponential(2.0)), 2.0, 0.0063);
        close(mean(n, || d.pareto(2.0, 3.0)), 2.0, 0.0041);
        close(mean(n, || d.normal()), 0.0, 0.0032);
    }

    #[test]
    fn derived_seeds_differ_by_label_and_are_repeatable() {
        assert_eq!(derive_seed(1, "core.fwd"), derive_seed(1, "core.fwd"));
        assert_ne!(derive_seed(1, "core.fwd"), derive_seed(1, "core.rev"));
        assert_ne!(derive_seed(1, "core.fwd"), derive_seed(2, "core.fwd"));
    }
}
