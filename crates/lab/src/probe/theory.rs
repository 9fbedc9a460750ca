//! The theoretical values with which probes compare the emulation. Pure.

use std::time::Duration;
use thalweg_units::Rate;

/// The share of payload in the IPv4 packet of a full TCP segment with timestamps: 1500 − 20 (IP) − 20 (TCP) − 12
/// (timestamps, RFC 7323 §3.2) = 1448 of 1500 bytes. Links count IP packets, so no flow can have a greater share of
/// their rate.
pub const TCP_SHARE_MAX: f64 = 1448.0 / 1500.0;

/// K of cubic, the time in which it regains the window of its last loss: K = ∛(W·(1 − β)/C) with β = 0.7, C = 0.4
/// segments/s³ (RFC 9438 §4.1.2, §4.2 eq. 2), W in segments of 1500 bytes.
///
/// W is the most that one flow can have in flight: the BDP of the path and as much again in a queue of 1 BDP. At 40 ms,
/// K is 13.6 s at 500 Mbit/s, 7.9 s at 100, 3.7 s at 10.
pub fn cubic_period(rate: Rate, rtt: Duration) -> Duration {
    let segments = 2.0 * rate.as_bps() as f64 * rtt.as_secs_f64() / 8.0 / 1500.0;
    Duration::from_secs_f64((0.3 * segments / 0.4).cbrt())
}

/// A Gilbert chain that steps once per packet and loses it while in the bad state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertChain {
    /// Probability of a step from good to bad, in (0, 1).
    pub good_to_bad: f64,
    /// Probability of a step from bad to good, in (0, 1).
    pub bad_to_good: f64,
}

impl GilbertChain {
    /// Independent losses of probability `p`: the chain whose next state does not depend on the present one.
    pub fn random(p: f64) -> Self {
        Self { good_to_bad: p, bad_to_good: 1.0 - p }
    }

    /// The stationary share of lost packets: p/(p + r).
    pub fn mean(self) -> f64 {
        self.good_to_bad / (self.good_to_bad + self.bad_to_good)
    }

    /// The standard error of the share of losses among `n` consecutive packets.
    ///
    /// Losses X are correlated: Cov(X_0, X_k) = m(1−m)·λᵏ with the mean m and λ = 1 − p − r, the chain's second
    /// eigenvalue. So Var(X̄) = m(1−m)/n · (1 + 2·Σ_{k=1}^{n−1} (1 − k/n)·λᵏ), and the sum is λ/(1−λ) −
    /// λ(1−λⁿ)/(n(1−λ)²). For λ = 0 it is that of the binomial distribution.
    pub fn standard_error(self, n: f64) -> f64 {
        let (m, rest) = (self.mean(), self.good_to_bad + self.bad_to_good);
        let lambda = 1.0 - rest;
        let sum = lambda / rest - lambda * (1.0 - lambda.powf(n)) / (n * rest * rest);
        (m * (1.0 - m) / n * (1.0 + 2.0 * sum)).sqrt()
    }

    /// The mean length of a run of losses: 1/r, as the length is geometric.
    pub fn mean_burst(self) -> f64 {
        1.0 / self.bad_to_good
    }

    /// The standard error of the mean length of `bursts` runs of losses: √((1−r)/r²)/√bursts.
    pub fn burst_standard_error(self, bursts: f64) -> f64 {
        (1.0 - self.bad_to_good).sqrt() / self.bad_to_good / bursts.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn the_period_of_cubic_grows_with_the_cube_root_of_the_window() {
        let period =
            |mbps, ms| cubic_period(Rate::from_mbps(mbps), Duration::from_millis(ms)).as_secs_f64();
        // W = 2·2.5 MB are 3333.3 segments; 0.3·3333.3/0.4 = 2500 = 13.572³.
        assert!((period(500.0, 40) - 13.572).abs() < 1e-3);
        assert!((period(500.0, 40) / period(62.5, 40) - 2.0).abs() < 1e-9);
        assert!((period(500.0, 40) / period(250.0, 80) - 1.0).abs() < 1e-9);
        assert!((period(0.0, 40)).abs() < 1e-9);
    }

    #[test]
    fn independent_losses_have_the_binomial_standard_error() {
        let random = GilbertChain::random(0.01);
        assert!((random.mean() - 0.01).abs() < 1e-15);
        let binomial = (0.01f64 * 0.99 / 40_000.0).sqrt();
        assert!((random.standard_error(40_000.0) / binomial - 1.0).abs() < 1e-9);
    }

    #[test]
    fn in_long_runs_the_error_grows_with_the_correlation() {
        let chain = GilbertChain { good_to_bad: 0.001, bad_to_good: 0.1 };
        let (m, n) = (chain.mean(), 1e9);
        let growth = (2.0 - 0.101) / 0.101; // (1 + λ)/(1 − λ)
        let expected = (m * (1.0 - m) / n * growth).sqrt();
        assert!((chain.standard_error(n) / expected - 1.0).abs() < 1e-6);
        assert!((chain.mean_burst() - 10.0).abs() < 1e-12);
    }

    /// The share of losses and the mean burst length in `n` simulated packets.
    fn simulate(chain: GilbertChain, n: usize, random: &mut Xoshiro256PlusPlus) -> (f64, f64) {
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut bad = uniform() < chain.mean();
        let (mut losses, mut bursts) = (0.0, 0.0);
        for _ in 0..n {
            let was_bad = bad;
            bad = if bad { uniform() >= chain.bad_to_good } else { uniform() < chain.good_to_bad };
            losses += f64::from(u8::from(bad));
            bursts += f64::from(u8::from(bad && !was_bad));
        }
        (losses / n as f64, losses / bursts)
    }

    #[test]
    fn simulated_chains_have_the_computed_standard_error() {
        let chain = GilbertChain { good_to_bad: 0.02, bad_to_good: 0.2 };
        let (runs, n) = (400, 2_000);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
        let shares: Vec<f64> = (0..runs).map(|_| simulate(chain, n, &mut random).0).collect();
        let mean = shares.iter().sum::<f64>() / f64::from(runs);
        let variance = shares.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / f64::from(runs - 1);
        let error = chain.standard_error(n as f64);
        assert!((mean - chain.mean()).abs() < 4.0 * error / f64::from(runs).sqrt(), "seed 11");
        // The variance of 400 normal samples has a relative standard error of √(2/399) = 7 %.
        assert!((variance.sqrt() / error - 1.0).abs() < 0.15, "{variance} seed 11");
    }
}
