//! What a node shows of how it is reached.

use super::ReachMode;
use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use std::{sync::Arc, time::Duration};
use thalweg_wire::mesh::Name;

/// How others reach a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReachWay {
    /// They dial it.
    Direct,
    /// Through relays.
    Relayed,
}

/// A relay with a standing channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StandingRelay {
    pub name: Name,
    #[serde(rename = "round_trip_seconds", serialize_with = "seconds")]
    pub round_trip: Duration,
}

fn seconds<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}

/// How a node is reached now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReachReport {
    pub mode: ReachMode,
    /// `None` until it is known.
    pub way: Option<ReachWay>,
    /// The relays, the nearest first.
    pub relays: Vec<StandingRelay>,
    /// The last failure, if there is not a standing channel to as many relays as are wanted.
    pub trouble: Option<String>,
}

/// A [`ReachReport`] that is kept current; cheap to clone.
#[derive(Clone, Debug)]
pub struct ReachView(Arc<Mutex<ReachReport>>);

impl ReachView {
    pub(super) fn new(mode: ReachMode) -> Self {
        let report = ReachReport { mode, way: None, relays: Vec::new(), trouble: None };
        Self(Arc::new(Mutex::new(report)))
    }

    /// The present state.
    pub fn get(&self) -> ReachReport {
        self.0.lock().clone()
    }

    pub(super) fn set_relays(&self, way: Option<ReachWay>, relays: Vec<StandingRelay>) {
        let mut report = self.0.lock();
        if relays.len() > report.relays.len() || way == Some(ReachWay::Direct) {
            report.trouble = None;
        }
        (report.way, report.relays) = (way, relays);
    }

    pub(super) fn trouble(&self, why: String) {
        self.0.lock().trouble = Some(why);
    }
}
