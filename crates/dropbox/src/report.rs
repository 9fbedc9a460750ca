//! What a node says of its boxes: `GET /metrics`, `thalweg status`, `thalweg drop-box`. No label
//! names a peer.

use super::{DropBoxes, one_box::Part};
use crate::Settings;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{counter::Counter, gauge::ConstGauge},
    registry::Registry,
};
use serde_json::{Value, json};
use std::fmt;
use thalweg_wire::bistro::show_date;

/// Counts since the daemon's start.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Channels that were opened.
    pub channels: Counter,
    /// Channels beyond the most at a time.
    pub busy: Counter,
    /// Questions that were answered with a refusal; of commitments each.
    pub refused: Counter,
}

/// What is in the books now, of all boxes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    committed: u64,
    received: u64,
    held: u64,
    held_bytes: u64,
    not_told: u64,
    given_away: u64,
    pushes: u64,
}

impl DropBoxes {
    /// Makes its counts known to `registry`, as `thalweg_drop_box_…`.
    pub fn register(&self, registry: &mut Registry) {
        let counts = &self.0.counts;
        let registry = registry.sub_registry_with_prefix("thalweg_drop_box");
        registry.register("channels", "Channels opened", counts.channels.clone());
        registry.register("busy", "Channels beyond the most at a time", counts.busy.clone());
        registry.register("refused", "Questions refused", counts.refused.clone());
        registry.register_collector(Box::new(Books(self.clone())));
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for one in self.0.boxes.values() {
            if let Part::Destination(books) = &one.part {
                sums.committed += books.ledger.count();
                sums.received += books.arrivals.count();
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

    /// For `thalweg status`, and the settings for `thalweg drop-box`.
    pub(super) fn tell_report(&self) -> Value {
        let (sums, counts) = (self.sums(), &self.0.counts);
        let mut report = json!({
            "boxes": self.0.boxes.len(), "committed": sums.committed, "received": sums.received,
            "held": sums.held, "held_bytes": sums.held_bytes, "not_told": sums.not_told,
            "given_away": sums.given_away, "pushes": sums.pushes, "refused": counts.refused.get(),
            "busy": counts.busy.get(),
        });
        report["settings"] = self.0.settings.iter().map(settings).collect();
        report
    }
}

/// One box's, as [`Settings`] is read.
fn settings(one: &Settings) -> Value {
    let all = json!({
        "name": one.name, "destination": one.destination, "until": one.until.map(show_date),
        "nodes": one.nodes, "open": one.open, "members": one.members, "keys": one.keys,
        "max_bytes": one.max_bytes, "max_total": one.max_total, "max_per_key": one.max_per_key,
        "max_bytes_per_key": one.max_bytes_per_key, "max_submissions": one.max_submissions, "max_rate": one.max_rate,
        "directory": one.directory,
    });
    match all {
        Value::Object(all) => all.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        other => other,
    }
}

/// The books, read when they are asked for.
#[derive(Debug)]
struct Books(DropBoxes);

impl Collector for Books {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sums = self.0.sums();
        for (name, help, value) in [
            ("commitments", "Commitments in this node's books", sums.committed),
            ("receipts", "Submissions whose data is at a node", sums.received),
            ("held", "Submissions whose data is here", sums.held),
            ("held_bytes", "Their bytes, and those that pushes may still bring", sums.held_bytes),
            ("not_told", "Receipts that their destination does not know yet", sums.not_told),
            ("given_away", "Submissions that their destination has collected", sums.given_away),
            ("pushes", "Data on its way here", sums.pushes),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_told() {
        let text = r#"
            name = "taxes"
            until = "2026-04-15T23:59:00Z"
            nodes = ["fra", "nyc"]
            open = true
            members = false
            keys = ["abababababababababababababababababababababababababababababababab"]
            max_bytes = "10 MB"
            max_bytes_per_key = "30 MB"
            max_rate = 7
            directory = "/srv/taxes"
        "#;
        let own: Settings = toml::from_str(text).unwrap();
        let others = toml::from_str("name = \"taxes\"\ndestination = \"fra\"").unwrap();
        for one in [own, others] {
            assert_eq!(serde_json::from_value::<Settings>(settings(&one)).unwrap(), one);
        }
    }
}
