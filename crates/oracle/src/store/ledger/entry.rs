//! What the ledger holds.

use thalweg_measure::{Bound, Method, Metric};
use thalweg_units::{NodeId, WallTime};

/// What a measurement is about, by whom, and how: the newest of each is what counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Topic {
    /// The leg's sender.
    pub from: NodeId,
    /// The leg's receiver.
    pub to: NodeId,
    /// Which property.
    pub metric: Metric,
    /// How.
    pub method: Method,
    /// Whether the true value may be larger.
    pub bound: Bound,
    /// Who says so.
    pub reporter: NodeId,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Of what.
    pub topic: Topic,
    /// The order that it answers; none: nobody asked. A reporter's second answer to one
    /// order is ignored.
    pub order: Option<u64>,
    /// In the metric's unit; finite, from 0 up. Kept as a whole number of bit/s, ns or 10⁻⁹.
    pub value: f64,
    /// Half the width of the middle half, in the same unit; none: one sample.
    pub spread: Option<f64>,
    /// Bytes that it cost.
    pub bytes: u64,
    /// When it ended, by the oracle's clock.
    pub measured: WallTime,
    /// What the other end counted, in the same unit; none: it said nothing.
    pub seen: Option<f64>,
}

/// A node is down, or up again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Which.
    pub node: NodeId,
    /// What it is now.
    pub state: State,
    /// For people.
    pub why: String,
    /// When it was noticed.
    pub at: WallTime,
}

/// Whether a node answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// It does not.
    Down,
    /// It does.
    Up,
}

/// Two say different things of one leg; rates in bit/s.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Disagreement {
    /// The leg's sender.
    pub from: NodeId,
    /// The leg's receiver.
    pub to: NodeId,
    /// Who claims.
    pub by: NodeId,
    /// What.
    pub claimed: f64,
    /// What the other end saw; none: nothing.
    pub seen: Option<f64>,
    /// What was believed; none: nothing.
    pub believed: Option<f64>,
    /// When.
    pub at: WallTime,
}

/// What is kept in one go.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Batch {
    /// Measurements.
    pub samples: Vec<Sample>,
    /// Changes of nodes.
    pub changes: Vec<Change>,
    /// Disagreements.
    pub disagreements: Vec<Disagreement>,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// Measurements that were news.
    pub samples: usize,
    /// Second answers to one order, which are ignored.
    pub duplicates: usize,
}

/// What stands for a topic's measurements of one window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Past {
    /// Of what.
    pub topic: Topic,
    /// When the window begins; as long as [`super::WINDOW`]. Of a single measurement
    /// that is still whole: when it ended.
    pub start: WallTime,
    /// The middle of the values.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub most: f64,
    /// How many.
    pub count: u64,
}
