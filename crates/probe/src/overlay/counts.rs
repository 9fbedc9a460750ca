//! Counters of the overlay, for the status report and `GET /metrics`. No label names a peer.

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use serde_json::{Value, json};

/// How a measurement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MeasurementOutcome {
    /// A range was found and reported.
    Measured,
    /// A lower bound was found and reported.
    AtLeast,
    /// There are doubts about the result, which is not reported.
    Doubtful,
    /// One of the two hosts was too busy to time probes: nothing was sent.
    Busy,
    /// The member could not be reached, or nothing was found.
    Failed,
}

impl MeasurementOutcome {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Measured, "measured"),
        (Self::AtLeast, "at_least"),
        (Self::Doubtful, "doubtful"),
        (Self::Busy, "busy"),
        (Self::Failed, "failed"),
    ];

    /// The value of the label in `GET /metrics`.
    pub fn label(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Measurements by how they ended, and their bytes; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct OverlayCounts {
    ended: Family<[(&'static str, &'static str); 1], Counter>,
    bytes: Counter,
}

impl OverlayCounts {
    /// Counts a measurement and the bytes it cost.
    pub(super) fn count(&self, how: MeasurementOutcome, bytes: u64) {
        self.ended.get_or_create(&[("outcome", how.label())]).inc();
        self.bytes.inc_by(bytes);
    }

    /// Registers the counters as `thalweg_overlay_…`.
    pub fn register(&self, registry: &mut Registry) {
        for (_, word) in MeasurementOutcome::ALL {
            // At zero from the start, so that the first one is seen as an increase.
            drop(self.ended.get_or_create(&[("outcome", word)]));
        }
        let at = registry.sub_registry_with_prefix("thalweg_overlay");
        at.register("measurements", "Links measured by trains, by outcome", self.ended.clone());
        at.register("bytes", "Bytes sent in these trains", self.bytes.clone());
    }

    /// The counters for `GET /v1/status` of the local API: the count of each outcome, and `bytes`.
    pub fn report(&self) -> Value {
        let mut report = json!({ "bytes": self.bytes.get() });
        for (_, word) in MeasurementOutcome::ALL {
            report[word] = json!(self.ended.get_or_create(&[("outcome", word)]).get());
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_counted_under_their_labels() {
        for (ended, word) in MeasurementOutcome::ALL {
            assert_eq!(ended.label(), word);
        }
        let counts = OverlayCounts::default();
        counts.count(MeasurementOutcome::Busy, 0);
        counts.count(MeasurementOutcome::Measured, 700);
        let report = counts.report();
        assert_eq!([&report["busy"], &report["bytes"], &report["failed"]], [1, 700, 0]);
    }
}
