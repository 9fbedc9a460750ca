//! How much of a window some task waited for a processor (PSI).

use std::{
    fs,
    time::{Duration, Instant},
};

/// The start of a window.
#[derive(Debug)]
pub struct Pressure {
    begun: Instant,
    stalled: Option<Duration>,
}

impl Pressure {
    /// Begins a window now.
    pub fn begin() -> Self {
        Self { begun: Instant::now(), stalled: stalled() }
    }

    /// The share of the window, 0..=1; `None` where the kernel does not say.
    pub fn share(&self) -> Option<f64> {
        let stalled = stalled()?.checked_sub(self.stalled?)?;
        Some((stalled.as_secs_f64() / self.begun.elapsed().as_secs_f64().max(1e-6)).min(1.0))
    }
}

/// Total time in which some task waited, since boot.
fn stalled() -> Option<Duration> {
    total(&fs::read_to_string("/proc/pressure/cpu").ok()?)
}

/// `total` of the line `some avg10=… total=µs`.
fn total(text: &str) -> Option<Duration> {
    let some = text.lines().find(|l| l.starts_with("some"))?;
    let (_, micros) = some.split_once("total=")?;
    Some(Duration::from_micros(micros.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read() {
        let text = "some avg10=2.18 avg60=1.57 avg300=1.26 total=15284623\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(total(text), Some(Duration::from_micros(15_284_623)));
        assert_eq!(total(""), None);
    }
}
