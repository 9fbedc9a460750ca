//! What a running lab says of itself: its honesty, and the truth about its links.

use crate::emu::LinkTruth;
use serde::{Deserialize, Serialize};

/// How late packets were delivered: wall-clock delivery minus logical time.
///
/// Logical time begins when the emulator reads a packet off its device; how long
/// it lay there before (up to the emulator's 50 µs rhythm, longer on a busy
/// machine) is not in here but in `cpu_pressure_percent`.
///
/// Microseconds over a window that [`reset`](crate::client::Lab::reset_stats)
/// starts anew; values past 100 ms count as 100 ms. A run whose `p99_us`
/// exceeds its bound is invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Packets delivered in the window.
    pub n: u64,
    /// Median, µs.
    pub p50_us: u64,
    /// 99th percentile, µs.
    pub p99_us: u64,
    /// 99.9th percentile, µs.
    pub p999_us: u64,
    /// Largest, µs.
    pub max_us: u64,
}

/// A running lab's state; `thalweg-bench lab stats --json` prints it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stats {
    /// Seconds since the lab's start.
    pub elapsed_s: f64,
    /// Seconds from the program's start until the network stood.
    pub setup_s: f64,
    /// Number of hosts.
    pub hosts: usize,
    /// Whether the emulator runs at real-time priority (root only).
    pub realtime: bool,
    /// Seconds of processor time the emulator's thread has used.
    pub emulator_cpu_s: f64,
    /// Share of the window in which some task of this machine waited for a
    /// processor, percent; `None` where the kernel does not say.
    pub cpu_pressure_percent: Option<f64>,
    /// How late packets were in the window.
    pub lateness: Lateness,
    /// Packets to addresses that no path leads to.
    pub no_route: u64,
    /// Packets that a host's kernel did not take.
    pub refused: u64,
    /// Packets that captures missed because they were written too slowly.
    pub capture_missed: u64,
    /// Each link's record.
    pub links: Vec<LinkTruth>,
}

impl Stats {
    /// The record of one half of a link, by name (`core.fwd`).
    pub fn link(&self, name: &str) -> Option<&LinkTruth> {
        self.links.iter().find(|l| l.name == name)
    }
}
