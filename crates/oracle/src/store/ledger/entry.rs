//! The entries of the ledger.

use thalweg_measure::{Bound, Method, Metric};
use thalweg_units::{NodeId, WallTime};

/// A leg's property, with how it was measured and who reports it. The newest sample of each topic counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Topic {
    pub from: NodeId,
    pub to: NodeId,
    pub metric: Metric,
    /// How it was measured.
    pub method: Method,
    /// Whether the true value may be larger.
    pub bound: Bound,
    pub reporter: NodeId,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// The leg's property and its reporter.
    pub topic: Topic,
    /// The order that it answers; `None`: unsolicited. A reporter's second answer to one order is ignored.
    pub order: Option<u64>,
    /// The value in the metric's unit; finite, from 0 up. Stored as a whole number of bit/s, ns or 10⁻⁹.
    pub value: f64,
    /// Half the interquartile range, in the same unit; `None`: one sample.
    pub spread: Option<f64>,
    /// Bytes that the measurement moved.
    pub bytes: u64,
    /// When the measurement ended, by the oracle's clock.
    pub measured: WallTime,
    /// The value that the other end counted, in the same unit; `None`: no report.
    pub seen: Option<f64>,
}

/// A node that went down or came up again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeChange {
    pub node: NodeId,
    /// Its state from now on.
    pub state: NodeState,
    /// The reason, for people.
    pub why: String,
    /// When it was noticed.
    pub at: WallTime,
}

/// Whether a node responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NodeState {
    /// The node does not respond.
    Down,
    /// The node responds.
    Up,
}

/// Contradicting reports on one leg; rates in bit/s.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Disagreement {
    pub from: NodeId,
    pub to: NodeId,
    /// The claiming host.
    pub by: NodeId,
    pub claimed: f64,
    /// The rate that the other end saw; `None`: no report.
    pub seen: Option<f64>,
    /// The rate that the oracle believed before; `None`: none.
    pub believed: Option<f64>,
    /// When it was noticed.
    pub at: WallTime,
}

/// Entries that are stored together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Batch {
    pub samples: Vec<Sample>,
    pub changes: Vec<NodeChange>,
    pub disagreements: Vec<Disagreement>,
}

/// The result of storing a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// Measurements that were stored.
    pub samples: usize,
    /// Repeated answers to an order, which are ignored.
    pub duplicates: usize,
}

/// A summary of a topic's measurements in one window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Summary {
    /// The leg's property and its reporter.
    pub topic: Topic,
    /// When the window begins; it is [`super::WINDOW`] long. For a single measurement: when that ended.
    pub start: WallTime,
    pub median: f64,
    pub least: f64,
    pub most: f64,
    /// The number of measurements.
    pub count: u64,
}
