//! Overlays on machines that may not be calm: their results are accepted nevertheless, and compared with nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use thalweg_measure::train::Calibration;
use thalweg_probe::{
    overlay::OverlayRunSettings,
    trains::{RiderCarrier, Riders},
};
use thalweg_units::{NodeId, Rate};
use thalweg_wire::mesh::Name;

/// A host that keeps gaps, whatever machine the test runs on; slow enough for any.
pub fn calm() -> Calibration {
    let us = Duration::from_micros;
    Calibration {
        send_latency: us(3),
        receive_latency: us(3),
        gap_error: [us(1), us(50)],
        honest: Rate::from_mbps(20.0),
        is_valid: true,
    }
}

/// An overlay with short pauses that accepts whatever this machine can measure.
pub fn quick() -> OverlayRunSettings {
    let pause = Duration::from_millis(20);
    OverlayRunSettings { pause, accepts_busy: true, ..OverlayRunSettings::default() }
}

/// A carrier's counters, without a carrier.
#[derive(Debug)]
pub struct Sends(Name, AtomicU64);

impl Sends {
    /// Bytes sent to this member.
    pub fn to(name: Name) -> Self {
        Self(name, AtomicU64::new(0))
    }
}

impl RiderCarrier for Sends {
    fn riders(&self, _: NodeId) -> Option<Arc<dyn Riders>> {
        None
    }

    /// A megabyte more each time.
    fn is_gone(&self) -> bool {
        false
    }

    fn sent(&self) -> Vec<(Name, u64)> {
        vec![(self.0.clone(), self.1.fetch_add(1_000_000, Ordering::Relaxed) + 1_000_000)]
    }

    fn report(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}
