//! Frequencies of random events agree with their probabilities within three standard errors.

use super::{KIND, us};
use crate::{
    emu::Link,
    topology::{Gilbert, LinkConfig, Loss, Probability, Reorder},
};
use std::time::Duration;
use thalweg_units::Time;

const N: usize = 400_000;

/// Which of `N` packets, one every microsecond, arrive.
fn arrived(loss: Loss, seed: u64) -> Vec<bool> {
    let mut link = Link::new(&LinkConfig { loss, ..LinkConfig::default() }, seed, Time::ZERO);
    let mut arrived = vec![false; N];
    for i in 0..N {
        link.enter(us(i as u64), 100, KIND, i);
        while let Some(arrival) = link.pop(us(i as u64)) {
            arrived[arrival.packet] = true;
        }
    }
    assert_eq!(link.truth(us(N as u64), false).random_losses, lost(&arrived) as u64);
    arrived
}

fn lost(arrived: &[bool]) -> usize {
    arrived.iter().filter(|a| !**a).count()
}

#[track_caller]
fn within_3_sigma(what: &str, seed: u64, value: f64, mean: f64, sigma: f64) {
    let z = (value - mean) / sigma;
    eprintln!("{what}, seed {seed}: {value} for {mean} ({z:+.2} sigma)");
    assert!(z.abs() <= 3.0, "{what}, seed {seed}: {value} for {mean}, {z:+.2} sigma");
}

fn deviation(p: f64) -> f64 {
    (p * (1.0 - p) / N as f64).sqrt()
}

#[test]
fn random_loss_has_its_frequency() {
    for (seed, p) in [(11, 0.001), (12, 0.01), (13, 0.3)] {
        let share = lost(&arrived(Loss::random(p), seed)) as f64 / N as f64;
        within_3_sigma("random loss", seed, share, p, deviation(p));
    }
}

#[test]
fn a_gilbert_chain_has_its_frequency_and_its_bursts() {
    for (seed, p, r) in [(21, 0.001, 0.1), (22, 0.02, 0.5), (23, 0.01, 0.25)] {
        let probability = Probability::new;
        let chain = Gilbert {
            good_to_bad: probability(p),
            bad_to_good: probability(r),
            in_bad: Probability::ALWAYS,
            in_good: Probability::NEVER,
        };
        let arrived = arrived(Loss::Gilbert(chain), seed);
        let share = lost(&arrived) as f64 / N as f64;
        // Successive states have the correlation ρ = 1 − p − r: the variance of the mean grows by (1 + ρ) / (1 − ρ).
        let rho = 1.0 - p - r;
        let mean = chain.mean_loss();
        let sigma = deviation(mean) * ((1.0 + rho) / (1.0 - rho)).sqrt();
        within_3_sigma("Gilbert loss", seed, share, mean, sigma);
        let bursts = arrived.windows(2).filter(|w| w[0] && !w[1]).count() as f64;
        // The length of a stay in the bad state is geometric with mean 1 / r.
        let sigma = (1.0 - r).sqrt() / r / bursts.sqrt();
        within_3_sigma("mean burst", seed, lost(&arrived) as f64 / bursts, 1.0 / r, sigma);
    }
}

#[test]
fn a_gilbert_chain_can_lose_in_both_states() {
    let seed = 31;
    let chain = Gilbert {
        good_to_bad: Probability::new(0.3),
        bad_to_good: Probability::new(0.6),
        in_bad: Probability::new(0.5),
        in_good: Probability::new(0.1),
    };
    let share = lost(&arrived(Loss::Gilbert(chain), seed)) as f64 / N as f64;
    let mean = (0.5 + 2.0 * 0.1) / 3.0;
    assert!((chain.mean_loss() - mean).abs() < 1e-12);
    // States have ρ = 0.1 and losses less, so this is an upper bound.
    within_3_sigma("loss in both states", seed, share, mean, deviation(mean) * 1.1);
}

#[test]
fn other_impairments_have_their_frequencies() {
    let seed = 41;
    let p = |p| Probability::new(p);
    let config = LinkConfig {
        reorder: Reorder { probability: p(0.02), by: Duration::from_micros(50) },
        duplicate: p(0.03),
        corrupt: p(0.05),
        ..LinkConfig::default()
    };
    let mut link = Link::new(&config, seed, Time::ZERO);
    let mut bits = 0_u64;
    for i in 0..N {
        link.enter(us(i as u64), 100, KIND, i);
        while let Some(arrival) = link.pop(us(i as u64)) {
            bits |= arrival.corrupt.unwrap_or_default();
        }
    }
    let truth = link.truth(us(N as u64), false);
    let share = |n: u64| n as f64 / N as f64;
    within_3_sigma("reordered", seed, share(truth.reordered), 0.02, deviation(0.02));
    within_3_sigma("duplicated", seed, share(truth.duplicated), 0.03, deviation(0.03));
    within_3_sigma("corrupted", seed, share(truth.corrupted), 0.05, deviation(0.05));
    assert_eq!(bits, u64::MAX, "every bit is chosen at times");
}

#[test]
fn losses_depend_only_on_the_seed() {
    let loss = Loss::random(0.1);
    assert_eq!(arrived(loss, 5), arrived(loss, 5));
    assert_ne!(arrived(loss, 5), arrived(loss, 6));
}
