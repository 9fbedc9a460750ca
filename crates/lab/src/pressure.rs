//! How long tasks of this machine waited for a processor: pressure stall
//! information (`/proc/pressure/cpu`, Linux ≥ 4.20).

use std::{fs, time::Instant};

/// A window over the kernel's counter of time in which *some* task waited.
#[derive(Debug)]
pub struct Pressure {
    start: Instant,
    waited_us: Option<u64>,
}

/// Time in which some task waited since boot, µs.
fn some_total_us() -> Option<u64> {
    total(&fs::read_to_string("/proc/pressure/cpu").ok()?)
}

/// `total` of the line `some avg10=… total=µs`.
fn total(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some"))?;
    some.rsplit_once("total=")?.1.trim().parse().ok()
}

impl Pressure {
    /// Starts a window.
    pub fn start() -> Self {
        Self { start: Instant::now(), waited_us: some_total_us() }
    }

    /// Share of the window in which some task waited, percent, 0..=100; `None` where the
    /// kernel does not say.
    pub fn percent(&self) -> Option<f64> {
        let waited = some_total_us()?.saturating_sub(self.waited_us?);
        let percent = waited as f64 / 1e4 / self.start.elapsed().as_secs_f64().max(1e-6);
        Some(percent.min(100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_some_is_read() {
        let text = "some avg10=2.18 avg60=1.57 avg300=1.26 total=15284623\nfull total=0\n";
        assert_eq!(total(text), Some(15_284_623));
        assert_eq!(total("full total=3"), None);
    }
}
