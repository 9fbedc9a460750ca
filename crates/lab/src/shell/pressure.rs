//! How long tasks of this machine waited for a processor (`/proc/pressure/cpu`).

use std::{fs, time::Instant};

/// A window over the kernel's counter.
pub struct Pressure {
    start: Instant,
    waited_us: Option<u64>,
}

/// The kernel's total of time in which some task waited, µs.
fn some_total_us() -> Option<u64> {
    let text = fs::read_to_string("/proc/pressure/cpu").ok()?;
    text.lines().next()?.rsplit_once("total=")?.1.trim().parse().ok()
}

impl Pressure {
    /// Starts a window.
    pub fn start() -> Self {
        Self { start: Instant::now(), waited_us: some_total_us() }
    }

    /// Share of the window in which some task waited, percent.
    pub fn percent(&self) -> Option<f64> {
        let waited = some_total_us()?.saturating_sub(self.waited_us?);
        Some(waited as f64 / 1e4 / self.start.elapsed().as_secs_f64().max(1e-6))
    }
}
