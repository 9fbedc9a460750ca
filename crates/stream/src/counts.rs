//! Metrics of all legs, for `GET /metrics`. No label names a stream or a peer.

use crate::{Tally, leg_queue::ByClass};
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use thalweg_wire::stream::leg::DropReason;

/// The class labels, by class number.
pub const CLASSES: [&str; 5] = ["tables", "audio", "key", "reference", "disposable"];

/// The metrics of a node's streams; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    sent: Family<[(&'static str, &'static str); 1], Counter>,
    bytes: Counter,
    dropped: Family<[(&'static str, &'static str); 2], Counter>,
    legs: Gauge,
}

impl Counts {
    /// Registers them as `thalweg_stream_…`.
    pub fn register(&self, registry: &mut Registry) {
        for class in CLASSES {
            // Export zeros from the start, so that the first event shows as an increase.
            drop(self.sent.get_or_create(&[("class", class)]));
            for why in DropReason::ALL {
                drop(self.dropped.get_or_create(&[("class", class), ("reason", why.word())]));
            }
        }
        let at = registry.sub_registry_with_prefix("thalweg_stream");
        at.register("frames", "Frames sent to subscribers and nodes", self.sent.clone());
        at.register("bytes", "Bytes of frames sent", self.bytes.clone());
        at.register("dropped_frames", "Frames dropped, by class and reason", self.dropped.clone());
        at.register("legs", "Subscribers and nodes served now", self.legs.clone());
    }

    /// Counts a leg as served until the guard is dropped.
    pub fn leg(&self) -> LegCounts {
        self.legs.inc();
        LegCounts { counts: self.clone(), counted: Tally::default() }
    }
}

/// The part of a leg's tally that the metrics include already.
#[derive(Debug)]
pub struct LegCounts {
    counts: Counts,
    counted: Tally,
}

impl LegCounts {
    /// Adds the increase since the last call.
    pub fn add(&mut self, tally: &Tally) {
        let more = |new: &ByClass, old: &ByClass| {
            let pairs: Vec<u64> = new.iter().zip(old).map(|(new, old)| new - old).collect();
            CLASSES.into_iter().zip(pairs).filter(|(_, more)| *more > 0)
        };
        for (class, count) in more(&tally.sent, &self.counted.sent) {
            self.counts.sent.get_or_create(&[("class", class)]).inc_by(count);
        }
        for (why, by_class) in &tally.dropped {
            let old = self.counted.dropped.get(why).copied().unwrap_or_default();
            for (class, count) in more(by_class, &old) {
                let labels = [("class", class), ("reason", why.word())];
                self.counts.dropped.get_or_create(&labels).inc_by(count);
            }
        }
        self.counts.bytes.inc_by(tally.bytes - self.counted.bytes);
        self.counted = tally.clone();
    }
}

impl Drop for LegCounts {
    fn drop(&mut self) {
        self.counts.legs.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legs_tally_is_counted_once() {
        let (counts, mut registry) = (Counts::default(), Registry::default());
        counts.register(&mut registry);
        let mut leg = counts.leg();
        let mut tally = Tally { sent: [0, 1, 2, 3, 4], bytes: 70, ..Tally::default() };
        tally.dropped.insert(DropReason::Room, [0, 0, 0, 0, 9]);
        leg.add(&tally);
        tally.sent[2] += 1;
        leg.add(&tally);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "thalweg_stream_frames_total{class=\"key\"} 3\n",
            "thalweg_stream_dropped_frames_total{class=\"disposable\",reason=\"room\"} 9\n",
            "thalweg_stream_dropped_frames_total{class=\"key\",reason=\"late\"} 0\n",
            "thalweg_stream_bytes_total 70\n",
            "thalweg_stream_legs 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
