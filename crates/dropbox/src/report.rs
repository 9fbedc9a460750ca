//! Reports on a node's boxes: `GET /metrics`, `thalweg status` and `thalweg drop-box`. Metrics have no labels for
//! clients or nodes.

use super::{DropBoxes, served_box::BoxRole};
use crate::Settings;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{counter::Counter, gauge::ConstGauge},
    registry::Registry,
};
use serde_json::{Value, json};
use std::fmt;

/// Counters since the daemon's start.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Channels opened.
    pub channels: Counter,
    /// Questions refused; for commitments each one counts.
    pub refused: Counter,
}

/// The present totals of all boxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct BoxTotals {
    committed: u64,
    received: u64,
    held: u64,
    held_bytes: u64,
    not_told: u64,
    given_away: u64,
    pushes: u64,
}

impl DropBoxes {
    /// Registers the metrics, named `thalweg_drop_box_…`.
    pub fn register(&self, registry: &mut Registry) {
        let counts = &self.0.counts;
        let registry = registry.sub_registry_with_prefix("thalweg_drop_box");
        registry.register("channels", "Channels opened", counts.channels.clone());
        registry.register("refusals", "Requests refused", counts.refused.clone());
        registry.register_collector(Box::new(BoxCollector(self.clone())));
    }

    fn sums(&self) -> BoxTotals {
        let mut sums = BoxTotals::default();
        for one in self.0.boxes.values() {
            if let BoxRole::Destination(records) = &one.role {
                sums.committed += records.ledger.count();
                sums.received += records.receipts.count();
            }
            let Some(spool) = &one.spool else { continue };
            let here = spool.counts();
            sums.held += here.held;
            sums.held_bytes += here.bytes;
            sums.not_told += here.untold;
            sums.given_away += here.gone;
            sums.pushes += u64::from(spool.load().pushes);
        }
        sums
    }

    /// The report for `thalweg status`; it includes the settings, for `thalweg drop-box`.
    pub(super) fn full_report(&self) -> Value {
        let (sums, counts) = (self.sums(), &self.0.counts);
        let mut report = json!({
            "boxes": self.0.boxes.len(), "committed": sums.committed, "received": sums.received,
            "held": sums.held, "held_bytes": sums.held_bytes, "not_told": sums.not_told,
            "given_away": sums.given_away, "pushes": sums.pushes, "refused": counts.refused.get(),
        });
        report["settings"] = self.0.settings.iter().map(Settings::report).collect();
        report
    }
}

/// A collector that reads the totals on each request.
#[derive(Debug)]
struct BoxCollector(DropBoxes);

impl Collector for BoxCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sums = self.0.sums();
        for (name, help, value) in [
            ("commitments", "Commitments recorded by this node.", sums.committed),
            ("receipts", "Submissions whose data a node has received.", sums.received),
            ("held_submissions", "Submissions whose data this node holds.", sums.held),
            ("held_bytes", "Bytes of the submissions that this node holds.", sums.held_bytes),
            (
                "undelivered_receipts",
                "Receipts not yet delivered to their destination.",
                sums.not_told,
            ),
            (
                "collected_submissions",
                "Submissions that their destination has collected.",
                sums.given_away,
            ),
            ("incoming_transfers", "Transfers to this node in progress.", sums.pushes),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}
