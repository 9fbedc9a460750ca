//! Settings of the measurements.

use std::time::Duration;
use thalweg_plan::dispatch::DispatchLimits;
use thalweg_units::ByteSize;
use thalweg_wire::mesh::measure::Strategy;

/// The order in which legs are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScheduleKind {
    /// UKAIRO's Algorithm 1 (§3.1.1).
    #[default]
    Algorithm1,
    /// Thalweg's own schedule: fewer measurements for the same gain.
    Thrifty,
    /// The baseline that UKAIRO compares with (§4.3).
    Random,
}

/// How a mesh is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasureConfig {
    /// Whether to order measurements. Reports and requests for candidates are served in any case.
    pub enabled: bool,
    /// The order in which legs are measured.
    pub schedule: ScheduleKind,
    /// For Algorithm 1: the pairs that each relay is known to detour before the second phase.
    pub t: u64,
    /// The share of all legs to measure, 0 to 1. Afterwards they are kept fresh.
    pub p: f64,
    /// The most bytes that a node sends or receives for measurements per day.
    pub bytes_per_day: ByteSize,
    /// The most bytes of one measurement.
    pub test_bytes: ByteSize,
    /// The longest measurement.
    pub test_time: Duration,
    /// The most measurements at a time in the whole mesh.
    pub at_once: usize,
    /// The deployment's congestion control; `None`: each host's default.
    pub congestion_control: Option<String>,
    /// The strategy for clients that do not request one.
    pub strategy: Strategy,
    /// Times and periods; tests shorten them.
    pub pace: Pace,
}

/// Times and periods of the measuring service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The time from an order to the sender's report.
    pub deadline: Duration,
    /// How long to wait for the second end's report: nodes retry a failed report within half a minute.
    pub settle: Duration,
    /// A node that has neither polled nor reported for this long is down: four of its polls.
    pub silent: Duration,
    /// How long an unreachable node is left alone.
    pub rest: Duration,
    /// The least time between two rankings; longer if a ranking takes long.
    pub rank: Duration,
    /// The time between two reads of what other oracles have recorded.
    pub follow: Duration,
    /// How long clients may use candidates.
    pub candidates: Duration,
    /// Each leg is measured again within this time.
    pub renew: Duration,
}

impl Default for Pace {
    /// In order: 30 s, 40 s, 90 s, 10 min, 1 s, 3 s, 60 s; 14 days (UKAIRO §2.1).
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            deadline: seconds(30),
            settle: seconds(40),
            silent: seconds(90),
            rest: seconds(600),
            rank: seconds(1),
            follow: seconds(3),
            candidates: seconds(60),
            renew: thalweg_plan::graph::MAX_AGE,
        }
    }
}

impl Default for MeasureConfig {
    /// Algorithm 1 with UKAIRO's t = 25 and p = 40 % (§4.3); 5 s and 256 MB per measurement, 2 GB per node and day, 16
    /// at once. A leg of 1 Gbit/s is steady after 105 to 190 MB, up to a round trip of 100 ms; with 64 MB it never
    /// would be.
    fn default() -> Self {
        Self {
            enabled: true,
            schedule: ScheduleKind::default(),
            t: 25,
            p: 0.4,
            bytes_per_day: ByteSize::from_bytes(2_000_000_000),
            test_bytes: ByteSize::from_bytes(256_000_000),
            test_time: Duration::from_secs(5),
            at_once: 16,
            congestion_control: None,
            strategy: Strategy::default(),
            pace: Pace::default(),
        }
    }
}

impl MeasureConfig {
    pub(super) fn limits(&self) -> DispatchLimits {
        DispatchLimits {
            test_bytes: self.test_bytes,
            test_time: self.test_time,
            bytes_per_day: self.bytes_per_day,
            deadline: self.pace.deadline,
            retries: 2,
            at_once: self.at_once,
            rest: self.pace.rest,
        }
    }
}
