//! A histogram of the lateness of packets.

use std::time::Duration;
use thalweg_lab::stats::Lateness;

/// The largest value, µs; greater ones count as this, because no run with such lateness is valid.
const TOP_US: usize = 100_000;

/// A histogram with one counter per microsecond.
pub struct Histogram {
    counts: Vec<u64>,
    n: u64,
    max: usize,
}

impl Histogram {
    /// Creates an empty histogram.
    pub fn new() -> Self {
        Self { counts: vec![0; TOP_US + 1], n: 0, max: 0 }
    }

    /// Counts one packet.
    pub fn record(&mut self, late: Duration) {
        let us = (late.as_micros() as usize).min(TOP_US);
        self.counts[us] += 1;
        self.n += 1;
        self.max = self.max.max(us);
    }

    /// Resets all counters.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// The number of packets, the quantiles that decide whether a run is valid, and the maximum.
    pub fn summary(&self) -> Lateness {
        Lateness {
            n: self.n,
            p50_us: self.quantile(0.5),
            p99_us: self.quantile(0.99),
            p999_us: self.quantile(0.999),
            max_us: self.max as u64,
        }
    }

    /// The smallest value that at least the share `q` of all packets does not exceed, µs.
    fn quantile(&self, q: f64) -> u64 {
        let wanted = (q * self.n as f64).ceil() as u64;
        let mut seen = 0;
        let reached = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        reached.unwrap_or(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_on_a_known_sample() {
        let mut histogram = Histogram::new();
        for us in 1..=1_000 {
            histogram.record(Duration::from_micros(us));
        }
        let summary = histogram.summary();
        assert_eq!((summary.p50_us, summary.p99_us, summary.p999_us), (500, 990, 999));
        histogram.record(Duration::from_secs(9));
        assert_eq!(histogram.summary().max_us, 100_000);
        histogram.clear();
        assert_eq!(histogram.summary(), Lateness::default());
    }
}
