//! Random draws from the caller's generator, for planning and simulation.

use rand_core::Rng;

/// Uniform in `0..n`, n > 0; biased by less than n/2⁶⁴.
pub fn below(n: usize, random: &mut (impl Rng + ?Sized)) -> usize {
    let wide = u128::from(random.next_u64()) * n as u128;
    usize::try_from(wide >> 64).unwrap_or(0)
}

/// Uniform in [0, 1).
pub fn unit(random: &mut (impl Rng + ?Sized)) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A position, with probability in proportion to its weight (finite, ≥ 0); `None` if all are 0.
pub fn weighted(weights: &[f64], random: &mut (impl Rng + ?Sized)) -> Option<usize> {
    let mut left = unit(random) * weights.iter().sum::<f64>();
    let positive = || weights.iter().enumerate().filter(|(_, w)| **w > 0.0);
    for (at, weight) in positive() {
        if left < *weight {
            return Some(at);
        }
        left -= weight;
    }
    // Rounding can leave a tiny rest.
    positive().next_back().map(|(at, _)| at)
}

/// The first `m` of the items in a uniformly random order (all, if there are no more): a partial Fisher–Yates shuffle.
pub fn distinct<T>(mut items: Vec<T>, m: usize, random: &mut (impl Rng + ?Sized)) -> Vec<T> {
    for at in 0..m.min(items.len()) {
        let other = at + below(items.len() - at, random);
        items.swap(at, other);
    }
    items.truncate(m);
    items
}
