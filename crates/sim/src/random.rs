//! Reproducible randomness: one stream for each purpose of a seed.
//!
//! How much one purpose draws does not affect what another draws, so that arms of one seed get the same network.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use thalweg_plan::draw;
pub use thalweg_plan::draw::unit;

/// The generator of all streams.
pub type Stream = Xoshiro256PlusPlus;

/// The stream of `seed` for a purpose, and for its `index`-th item.
pub fn stream(seed: u64, purpose: &str, index: u64) -> Stream {
    // FNV-1a over the purpose, then SplitMix64 steps: seeds differ in a few low bits only.
    let hash = purpose.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Stream::seed_from_u64(mix(mix(seed ^ hash).wrapping_add(index)))
}

/// The finaliser of SplitMix64.
const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A uniform number among `0..below`; `below` ≥ 1.
pub fn index(random: &mut (impl Rng + ?Sized), below: usize) -> usize {
    draw::below(below, random)
}

/// A number from the normal distribution with mean 0 and deviation 1 (Box and Muller).
pub fn normal(random: &mut (impl Rng + ?Sized)) -> f64 {
    let radius = (-2.0 * (1.0 - unit(random)).ln()).sqrt();
    radius * (std::f64::consts::TAU * unit(random)).cos()
}

/// A number from the exponential distribution with this mean.
pub fn exponential(random: &mut (impl Rng + ?Sized), mean: f64) -> f64 {
    -mean * (1.0 - unit(random)).ln()
}

/// `count` distinct numbers below `of`, in random order (all, if `count` is more).
pub fn sample(random: &mut (impl Rng + ?Sized), of: usize, count: usize) -> Vec<usize> {
    draw::distinct((0..of).collect(), count, random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_repeats_and_differs_by_seed_purpose_and_index() {
        let first = |seed, purpose, at| stream(seed, purpose, at).next_u64();
        assert_eq!(first(1, "a", 0), first(1, "a", 0));
        let all = [first(1, "a", 0), first(2, "a", 0), first(1, "b", 0), first(1, "a", 1)];
        for (i, x) in all.iter().enumerate() {
            assert!(!all[..i].contains(x), "two streams begin alike");
        }
    }

    #[test]
    fn the_normal_and_exponential_distributions_have_their_moments() {
        let mut random = stream(7, "moments", 0);
        let normals: Vec<f64> = (0..20_000).map(|_| normal(&mut random)).collect();
        let mean = normals.iter().sum::<f64>() / 20_000.0;
        let variance = normals.iter().map(|x| x * x).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        let mean = (0..20_000).map(|_| exponential(&mut random, 3.0)).sum::<f64>() / 20_000.0;
        assert!((mean - 3.0).abs() < 0.15, "{mean}");
    }

    #[test]
    fn a_sample_is_distinct_and_of_the_asked_size() {
        let mut random = stream(7, "sample", 0);
        let mut some = sample(&mut random, 10, 4);
        some.sort_unstable();
        some.dedup();
        assert_eq!(some.len(), 4);
        assert!(some.iter().all(|&x| x < 10));
        assert_eq!(sample(&mut random, 3, 9).len(), 3);
    }
}
