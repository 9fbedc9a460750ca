//! A part of the waiting entries, as large as one report may be.

use std::fmt;
use thalweg_wire::mesh::measure::{
    Load, MOST_BYTES, MOST_ENTRIES, OrderReport, Outcome, PassiveReport, ReceivedReport, Reports,
    TrainReport,
};
use tokio::time::Instant;

/// An entry of a report.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    Done(OrderReport),
    Received(ReceivedReport),
    Passive(PassiveReport),
    Probed(TrainReport),
    Load(Load),
}

/// Entries, each with the time at which its age was right.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportBatch(pub Vec<(Instant, Entry)>);

impl ReportBatch {
    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Splits it into two halves; `Err` with the part itself if it has fewer than two entries.
    pub fn halves(mut self) -> Result<(Self, Self), Self> {
        if self.0.len() < 2 {
            return Err(self);
        }
        let second = self.0.split_off(self.0.len() / 2);
        Ok((self, Self(second)))
    }

    /// The report of these entries now, each older by the time it has waited.
    pub fn reports(&self) -> Reports {
        let mut reports = Reports::default();
        for (at, entry) in &self.0 {
            entry.clone().add_aged(*at, &mut reports);
        }
        reports
    }

    /// Whether an oracle accepts this many entries and bytes at a time.
    pub fn fits(&self, reports: &Reports) -> bool {
        // A report that cannot be written as JSON is not too long: the oracle says what is wrong.
        let length = serde_json::to_vec(reports).map_or(0, |json| json.len());
        self.0.len() <= MOST_ENTRIES && length <= MOST_BYTES
    }
}

impl Entry {
    fn add_aged(self, at: Instant, reports: &mut Reports) {
        let waited = at.elapsed();
        match self {
            Self::Done(mut done) => {
                if let Outcome::Measured { age, .. } = &mut done.outcome {
                    *age += waited;
                }
                reports.done.push(done);
            }
            Self::Received(r) => reports.received.push(ReceivedReport { age: r.age + waited, ..r }),
            Self::Passive(w) => reports.passive.push(PassiveReport { age: w.age + waited, ..w }),
            Self::Probed(p) => reports.probed.push(TrainReport { age: p.age + waited, ..p }),
            Self::Load(load) => reports.load = Some(load),
        }
    }
}

/// For the log.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(done) => write!(f, "order {} (this node is the sender)", done.id),
            Self::Received(received) => {
                write!(f, "order {} (this node is the receiver)", received.id)
            }
            Self::Passive(watched) => write!(f, "transfers {} to {}", watched.from, watched.to),
            Self::Probed(probed) => write!(f, "trains to {}", probed.to),
            Self::Load(_) => f.write_str("the relay's load"),
        }
    }
}
