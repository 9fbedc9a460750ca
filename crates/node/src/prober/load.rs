//! How loaded this node's relay is.

use crate::relay::RelayMetrics;
use thalweg_units::Rate;
use thalweg_wire::mesh::measure::Load;
use tokio::time::Instant;

/// What is known of the relay of this node.
#[derive(Clone, Debug)]
pub struct RelayView {
    /// Its counts, and what it sees of legs.
    pub metrics: RelayMetrics,
    /// The most sessions.
    pub max_sessions: u64,
    /// What it can relay, if the operator says so; else the most that was seen counts.
    pub capacity: Option<Rate>,
    /// Whether members' transfers are reported as passive measurements.
    pub passive: bool,
}

/// Readings of the relay's bytes, and the rates between them.
#[derive(Debug)]
pub(super) struct LoadMeter {
    last: (Instant, u64),
    highest: f64,
}

impl LoadMeter {
    /// Counts from now on.
    pub fn new(view: &RelayView) -> Self {
        Self { last: (Instant::now(), view.metrics.bytes()), highest: 0.0 }
    }

    /// The load since the last reading.
    pub fn read(&mut self, view: &RelayView) -> Load {
        let (now, bytes) = (Instant::now(), view.metrics.bytes());
        let seconds = (now - self.last.0).as_secs_f64().max(0.001);
        let bps = bytes.saturating_sub(self.last.1) as f64 * 8.0 / seconds;
        self.last = (now, bytes);
        self.highest = self.highest.max(bps);
        let seen = Some(self.highest).filter(|highest| *highest > 0.0);
        Load {
            bps,
            limit_bps: view.capacity.map(|rate| rate.as_bps() as f64).or(seen),
            sessions: view.metrics.open(),
            max_sessions: view.max_sessions,
        }
    }
}
