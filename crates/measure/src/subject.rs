//! What an estimate is about.

use serde::{Deserialize, Serialize};
use thalweg_units::PathId;

/// A node's dense index, `0..n` within its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeIndex(pub u32);

/// One interface of a node, by its dense index within the node (not the kernel's index).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Interface {
    pub node: NodeIndex,
    /// `0..` in the order of the node's interfaces; 0 if it has only one.
    pub interface: u32,
}

/// The dense index of a set of paths that were found to share a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SharedSetIndex(pub u32);

/// What an estimate is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The direct path from one interface of a node to another node; directed.
    Leg { from: Interface, to: NodeIndex },
    /// The whole path of one transfer, including relays.
    Path(PathId),
    /// All traffic that leaves through an interface, to any destination.
    Egress(Interface),
    /// All traffic that arrives through an interface, from any source.
    Ingress(Interface),
    /// The bottleneck that a set of paths shares.
    SharedSet(SharedSetIndex),
}

impl Subject {
    /// The leg from a node's interface 0 to another node: for nodes that have, or are treated as having, one interface.
    pub fn leg(from: u32, to: u32) -> Self {
        let from = Interface { node: NodeIndex(from), interface: 0 };
        Self::Leg { from, to: NodeIndex(to) }
    }

    /// The nodes that it refers to.
    pub fn nodes(&self) -> impl Iterator<Item = NodeIndex> {
        let (first, second) = match *self {
            Self::Leg { from, to } => (Some(from.node), Some(to)),
            Self::Egress(at) | Self::Ingress(at) => (Some(at.node), None),
            Self::Path(_) | Self::SharedSet(_) => (None, None),
        };
        first.into_iter().chain(second)
    }
}
