//! The load of this node's relay.

use thalweg_relay::RelayMetrics;
use thalweg_units::Rate;
use thalweg_wire::mesh::measure::Load;
use tokio::time::Instant;

/// What is known of this node's relay.
#[derive(Clone, Debug)]
pub struct RelayView {
    /// The relay's counters, and what it sees of legs.
    pub metrics: RelayMetrics,
    pub max_sessions: u64,
    /// The rate that it can relay, if the operator has set it. The highest rate seen so far would be no limit: a relay
    /// that nobody has used yet is not full at its first megabit.
    pub capacity: Option<Rate>,
    /// Whether members' transfers are reported as passive measurements.
    pub passive: bool,
}

/// Computes rates from readings of the relay's bytes.
#[derive(Debug)]
pub(super) struct LoadMeter {
    last: (Instant, u64),
}

impl LoadMeter {
    /// Begins to count now.
    pub fn new(view: &RelayView) -> Self {
        Self { last: (Instant::now(), view.metrics.bytes()) }
    }

    /// The load since the last reading.
    pub fn read(&mut self, view: &RelayView) -> Load {
        let (now, bytes) = (Instant::now(), view.metrics.bytes());
        let seconds = (now - self.last.0).as_secs_f64().max(0.001);
        let bps = bytes.saturating_sub(self.last.1) as f64 * 8.0 / seconds;
        self.last = (now, bytes);
        Load {
            bps,
            limit_bps: view.capacity.map(|rate| rate.as_bps() as f64),
            sessions: view.metrics.open(),
            max_sessions: view.max_sessions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, atomic::Ordering};
    use thalweg_wire::mesh::LegKind;

    #[tokio::test(start_paused = true)]
    async fn a_limit_is_reported_only_if_the_operator_sets_one() {
        let (metrics, moved) = (RelayMetrics::default(), Arc::default());
        let _flow = metrics.flow(LegKind::Open, &moved);
        let mut view = RelayView { metrics, max_sessions: 9, capacity: None, passive: true };
        let mut meter = LoadMeter::new(&view);
        moved.down.store(1_000_000, Ordering::Relaxed);
        tokio::time::advance(std::time::Duration::from_secs(8)).await;
        let load = meter.read(&view);
        assert_eq!((load.bps, load.limit_bps, load.max_sessions), (1e6, None, 9));
        view.capacity = Some(Rate::from_mbps(5.0));
        assert_eq!(meter.read(&view).limit_bps, Some(5e6));
    }
}
