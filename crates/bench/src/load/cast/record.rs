//! The record of a cast, built from its events.

use super::{
    super::cast_events::{self, CastEvent},
    legs::Legs,
};
use std::collections::BTreeMap;

/// The events of a cast that matter for the report.
#[derive(Debug, Default)]
pub struct CastRecord {
    /// The size of the object, bytes.
    pub bytes: u64,
    /// The planned parents of each receiver, the best first.
    pub parents: BTreeMap<String, Vec<String>>,
    /// The progress of each receiver over time.
    pub held: BTreeMap<String, Vec<ProgressRecord>>,
    /// For each receiver the parent with the highest rate in the newest progress event.
    pub now: BTreeMap<String, String>,
    /// The receivers that have the object, with their times and costs.
    pub received: BTreeMap<String, ReceiverResult>,
    /// Parents that were left: receiver, parent, reason.
    pub left: Vec<(String, String, String)>,
    /// Symbols that parents' rings no longer held, by receiver.
    pub missed: BTreeMap<String, f64>,
    /// The most bytes that any node's ring held at once.
    pub ring_peak: f64,
    /// Bytes that the source has sent.
    pub served: f64,
    /// The outcome and the duration, s.
    pub ended: Option<(String, f64)>,
    /// The error of a cast that failed.
    pub failed: Option<String>,
}

/// The progress of a receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProgressRecord {
    /// Time since the first offer, s.
    pub at: f64,
    /// Bytes that the receiver has.
    pub bytes: f64,
    /// The rate over the last second, bit/s.
    pub bps: f64,
}

/// The end of one receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReceiverResult {
    /// Bytes received.
    pub came: f64,
    /// Received bytes that were of no use.
    pub useless: f64,
    /// The receiver's own duration, s.
    pub seconds: f64,
    /// Time from the first offer until the source knew, s.
    pub after: f64,
    /// Time from the command's start until then, s.
    pub heard: f64,
}

impl CastRecord {
    /// Records one line of the cast's output, read `now` seconds after the command's start.
    ///
    /// # Errors
    /// When the line is not an event of the product.
    pub fn add_line(&mut self, line: &str, now: f64) -> anyhow::Result<()> {
        match cast_events::read(line)? {
            CastEvent::Started { bytes } => self.bytes = bytes,
            CastEvent::Planned { receivers } => {
                self.parents = receivers.into_iter().map(|one| (one.name, one.parents)).collect();
            }
            CastEvent::ParentLeft { receiver, parent, why } => {
                self.left.push((receiver, parent, why))
            }
            CastEvent::Progress { seconds, served_bytes, ring_peak_bytes, receivers, relays } => {
                self.served = served_bytes;
                let below = receivers.iter().map(|one| one.ring_peak_bytes);
                let all = below.chain(relays.iter().map(|one| one.ring_peak_bytes));
                self.ring_peak = all.fold(self.ring_peak.max(ring_peak_bytes), f64::max);
                receivers.into_iter().for_each(|one| self.progress(seconds, one));
            }
            CastEvent::Received(came) => self.receive(came, now),
            CastEvent::Refused { receiver, why, again: false } => {
                self.failed = Some(format!("{receiver}: {why}"));
            }
            CastEvent::Broken { why } | CastEvent::Failed { why } => self.failed = Some(why),
            CastEvent::Ended(end) => self.ended = Some((end.outcome, end.seconds)),
            CastEvent::Refused { .. }
            | CastEvent::PassedOver {}
            | CastEvent::SpecialBits {}
            | CastEvent::OwnersIgnored {}
            | CastEvent::LinksRefused {}
            | CastEvent::FileFailed {}
            | CastEvent::MoreFailed {}
            | CastEvent::Hashing {} => {}
            CastEvent::Accepted {} | CastEvent::Unreached {} | CastEvent::Note {} => {}
            CastEvent::MorePassedOver {} | CastEvent::WouldTake {} | CastEvent::Verdict {} => {}
        }
        Ok(())
    }

    fn progress(&mut self, at: f64, one: cast_events::Progress) {
        let held = ProgressRecord { at, bytes: one.held_bytes, bps: one.rate_bps };
        self.missed.insert(one.name.clone(), one.missed_symbols);
        if let Some(parent) = one.parents.into_iter().max_by_key(|parent| parent.rate_bps) {
            self.now.insert(one.name.clone(), parent.name);
        }
        self.held.entry(one.name).or_default().push(held);
    }

    fn receive(&mut self, came: cast_events::ReceiverEnd, heard: f64) {
        let received = ReceiverResult {
            came: came.received_bytes,
            useless: came.duplicate_bytes,
            seconds: came.seconds,
            after: came.after_seconds,
            heard,
        };
        self.received.insert(came.receiver, received);
    }

    /// The share of the object that a receiver had at its newest progress event.
    pub fn share(&self, receiver: &str) -> f64 {
        let last = self.held.get(receiver).and_then(|all| all.last());
        last.map_or(0.0, |held| held.bytes / self.bytes.max(1) as f64)
    }

    /// The tree of each receiver's first parent.
    pub fn tree(&self) -> Legs {
        let leg = |(child, parents): (&String, &Vec<String>)| {
            Some((parents.first()?.clone(), child.clone()))
        };
        Legs(self.parents.iter().filter_map(leg).collect())
    }

    /// When a receiver had this share, s since the first offer; interpolated linearly between progress events.
    pub fn time_of_share(&self, receiver: &str, share: f64) -> Option<f64> {
        let (all, wanted) = (self.held.get(receiver)?, share * self.bytes as f64);
        let after = all.iter().position(|held| held.bytes >= wanted)?;
        let next = all.get(after)?;
        let Some(last) = after.checked_sub(1).and_then(|before| all.get(before)) else {
            return Some(next.at);
        };
        let part = (wanted - last.bytes) / (next.bytes - last.bytes);
        Some(last.at + part * (next.at - last.at))
    }

    /// A receiver's mean rate between two shares of the object, bit/s.
    pub fn steady_rate(&self, receiver: &str, (from, to): (f64, f64)) -> Option<f64> {
        let span = self.time_of_share(receiver, to)? - self.time_of_share(receiver, from)?;
        (span > 0.0).then(|| (to - from) * self.bytes as f64 * 8.0 / span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_recorded() {
        let mut record = CastRecord::default();
        let text = r#"{"event":"started","bytes":1000,"name":"x"}
{"event":"planned","receivers":[{"name":"a","parents":["s","b"]},{"name":"b","parents":["a"]}]}
{"event":"progress","seconds":1.0,"served_bytes":5,"ring_peak_bytes":0,"receivers":[{"name":"a","ring_peak_bytes":0,"held_bytes":200,"rate_bps":9,"missed_symbols":3,"parents":[]}]}
{"event":"progress","seconds":2.0,"served_bytes":5,"ring_peak_bytes":70,"relays":[{"name":"r","missed_symbols":0,"ring_peak_bytes":90}],"receivers":[{"name":"a","ring_peak_bytes":80,"held_bytes":700,"rate_bps":9,"missed_symbols":3,"parents":[{"name":"s","rate_bps":1},{"name":"b","rate_bps":5}]}]}
{"event":"received","receiver":"a","received_bytes":1010,"duplicate_bytes":10,"served_bytes":0,"parents":[],"seconds":2.5,"rate_bps":0,"after_seconds":2.6}
{"event":"ended","outcome":"complete","bytes":1000,"complete":2,"served_bytes":5,"seconds":2.7}"#;
        text.lines().for_each(|line| record.add_line(line, 3.0).unwrap());
        assert!(record.add_line("noise", 3.0).is_err());
        assert_eq!(record.tree().0.len(), 2);
        assert_eq!(record.tree().path_to_root("b").len(), 2);
        assert!((record.time_of_share("a", 0.3).unwrap() - 1.2).abs() < 1e-9);
        // 500 bytes per second.
        assert!((record.steady_rate("a", (0.3, 0.6)).unwrap() - 4000.0).abs() < 1e-6);
        assert_eq!(record.time_of_share("a", 0.9), None);
        assert!((record.share("a") - 0.7).abs() < 1e-9);
        assert_eq!((record.received["a"].came, record.ring_peak), (1010.0, 90.0));
        assert_eq!(record.ended, Some(("complete".to_owned(), 2.7)));
        assert_eq!((record.missed["a"], record.now["a"].as_str()), (3.0, "b"));
    }
}
