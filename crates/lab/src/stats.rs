//! The statistics of a running lab: the accuracy of its emulation and the records of its links.

use crate::emu::LinkTruth;
use serde::{Deserialize, Serialize};

/// The lateness of packets: wall-clock time of delivery minus logical time, µs.
///
/// Logical time begins when the emulator reads a packet from its device. The time that the packet waited there (up to
/// the emulator's quantum of 50 µs, longer on a busy machine) is not included; `cpu_pressure_percent` indicates it.
///
/// The values cover a window that [`reset`](crate::client::Lab::reset_stats) restarts. Values above 100 ms count as 100
/// ms. A run whose `p99_us` exceeds its bound is invalid.
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

/// The statistics of a running lab; `thalweg-bench lab stats --json` prints them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stats {
    /// Seconds since the lab's start.
    pub elapsed_s: f64,
    /// Seconds from the program's start until the network was set up.
    pub setup_s: f64,
    /// Number of hosts.
    pub hosts: usize,
    /// Whether the emulator runs at real-time priority (root only).
    pub realtime: bool,
    /// CPU time of the emulator's thread, seconds.
    pub emulator_cpu_s: f64,
    /// The share of the window in which some task waited for a processor, percent (see [`pressure`](crate::pressure));
    /// `None` if the kernel does not report it.
    pub cpu_pressure_percent: Option<f64>,
    /// The lateness of packets in the window.
    pub lateness: Lateness,
    /// Packets to addresses without a path.
    pub no_route: u64,
    /// Packets that a host's kernel rejected.
    pub refused: u64,
    /// Packets that captures missed because they were written too slowly, or because too many entered at once.
    pub capture_missed: u64,
    /// Each link's record.
    pub links: Vec<LinkTruth>,
}

impl Stats {
    /// The record of one direction of a link, by name (`core.fwd`).
    pub fn link(&self, name: &str) -> Option<&LinkTruth> {
        self.links.iter().find(|l| l.name == name)
    }
}
