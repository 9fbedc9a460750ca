//! Randomness of tests.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use thalweg_plan::draw::unit;

/// A generator whose seed is printed, so that failures can be reproduced.
pub fn seeded(seed: u64) -> Xoshiro256PlusPlus {
    println!("seed {seed}");
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

/// Approximately normal, with deviation 1.
pub fn normal(random: &mut impl Rng) -> f64 {
    (0..12).map(|_| unit(random)).sum::<f64>() - 6.0
}
