//! Overlays on machines that are not calm: what they find is taken all the same, and held against nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use thalweg_measure::train::Calibration;
use thalweg_probe::{
    overlay::OverlayRun,
    trains::{Carries, Riders},
};
use thalweg_units::{NodeId, Rate};
use thalweg_wire::mesh::Name;

/// A host that keeps gaps, whatever the machine of this test does; slow enough for it.
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

/// An overlay that hardly waits, and takes what this machine can tell.
pub fn quick() -> OverlayRun {
    let pause = Duration::from_millis(20);
    OverlayRun { pause, accepts_busy: true, ..OverlayRun::default() }
}

/// Counts of a carrier, without one.
#[derive(Debug)]
pub struct Sends(Name, AtomicU64);

impl Sends {
    /// To this member.
    pub fn to(name: Name) -> Self {
        Self(name, AtomicU64::new(0))
    }
}

impl Carries for Sends {
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
