//! Summary statistics of samples.

use serde::Serialize;

/// A summary of samples of one quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The unit of all values.
    pub unit: &'static str,
    /// The number of samples.
    pub n: usize,
    pub min: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile: at least 99 % of the samples are at most this.
    pub p99: f64,
    pub max: f64,
}

impl Summary {
    /// Summarises `samples`; `None` if there are none. O(n log n).
    pub fn from_samples(unit: &'static str, mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let (min, max) = (*samples.first()?, *samples.last()?);
        let n = samples.len();
        let mean = samples.iter().sum::<f64>() / n as f64;
        Some(Self { unit, n, min, mean, p50: rank(&samples, 0.5), p99: rank(&samples, 0.99), max })
    }
}

/// The nearest-rank quantile `q` in 0..=1 of sorted, non-empty `samples`: the smallest value such that at least the
/// share `q` of all samples is at or below it.
fn rank(samples: &[f64], q: f64) -> f64 {
    let k = (q * samples.len() as f64).ceil() as usize;
    samples[k.clamp(1, samples.len()) - 1]
}

/// Jain's fairness index (Jain, Chiu, Hawe 1984): (Σx)²/(n·Σx²). 1 means equal shares, 1/n that one flow takes
/// everything. `None` without any throughput.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_uses_nearest_ranks() {
        let s = Summary::from_samples("ms", (1..=100).rev().map(f64::from).collect()).unwrap();
        assert_eq!((s.n, s.min, s.p50, s.p99, s.max), (100, 1.0, 50.0, 99.0, 100.0));
        assert_eq!(s.mean, 50.5);
        assert_eq!(Summary::from_samples("ms", vec![]), None);
    }

    #[test]
    fn jain_is_one_for_equal_shares_and_one_over_n_for_a_single_flow() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[5.0, 0.0]), Some(0.5));
        assert_eq!(jain(&[0.0, 0.0]), None);
    }
}
