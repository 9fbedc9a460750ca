//! A histogram of how late packets are.

use std::time::Duration;
use thalweg_lab::stats::Lateness;

/// Values past this many microseconds count as this: no run that late is valid.
const TOP_US: usize = 100_000;

/// One counter a microsecond.
pub struct Histogram {
    counts: Vec<u64>,
    n: u64,
    max: usize,
}

impl Histogram {
    /// An empty one.
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

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// The quantiles that decide validity.
    pub fn summary(&self) -> Lateness {
        Lateness {
            n: self.n,
            p50_us: self.quantile(0.5),
            p99_us: self.quantile(0.99),
            p999_us: self.quantile(0.999),
            max_us: self.max as u64,
        }
    }

    /// The smallest value that at least a share `q` of all does not exceed.
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
