//! The plan of the global scheduler for this node.

use crate::Quality;
use serde::Serialize;
use std::{collections::BTreeMap, fmt, str::FromStr};
use thalweg_wire::mesh::{Name, NameError};

/// The plan for this node's streams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Its version at the oracle; zero if there is no plan yet.
    pub version: u64,
    /// The plan of each stream.
    pub streams: BTreeMap<Name, StreamPlan>,
}

/// The plan of one stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamPlan {
    /// The parent to subscribe to; `None` if the stream is published here or the plan names no parent.
    pub parent: Option<ParentRoute>,
    /// The publisher's node; `None` if the plan does not say.
    pub origin: Option<Name>,
    /// The plan of the leg to each child.
    pub children: BTreeMap<Name, LegPlan>,
    /// Why subscriptions of this host's programs get nothing, by their numbers.
    pub failures: BTreeMap<u32, NoRoute>,
}

/// Why there is no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// Nobody publishes the stream, or no oracle answers.
    Unknown,
    /// The publisher's node does not allow this member.
    Forbidden,
    /// No path has room for it.
    Full,
    /// The oracle has not decided in time.
    Undecided,
}

/// The plan of one leg, and its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct LegPlan {
    /// The quality to send.
    pub quality: Quality,
    /// The reason in words.
    pub why: String,
    /// The estimate behind it, bit/s, and the estimate's age at that time, s.
    pub estimate: Option<(f64, f64)>,
}

/// The route to a parent, written `relay+node` with the relay nearest to this node first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct ParentRoute {
    pub node: Name,
    /// The relays, nearest first.
    pub via: Vec<Name>,
}

impl ParentRoute {
    /// A route without relays.
    pub fn direct(node: Name) -> Self {
        Self { node, via: Vec::new() }
    }
}

impl FromStr for ParentRoute {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut names = text.split('+').map(str::parse).collect::<Result<Vec<Name>, _>>()?;
        // `split` yields at least one piece.
        let node = names.pop().map_or_else(|| text.parse(), Ok)?;
        Ok(Self { node, via: names })
    }
}

impl fmt::Display for ParentRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for relay in &self.via {
            write!(f, "{relay}+")?;
        }
        write!(f, "{}", self.node)
    }
}

impl From<ParentRoute> for String {
    fn from(route: ParentRoute) -> Self {
        route.to_string()
    }
}

impl Plan {
    /// The plan of the leg to this child, if there is one.
    pub fn leg(&self, stream: &Name, child: &Name) -> Option<&LegPlan> {
        self.streams.get(stream)?.children.get(child)
    }

    /// The route to the stream's planned parent.
    pub fn parent(&self, stream: &Name) -> Option<&ParentRoute> {
        self.streams.get(stream)?.parent.as_ref()
    }

    /// The route to the planned parent of the stream from this origin; `None` if the plan means another stream.
    pub fn parent_of(&self, stream: &Name, origin: &Name) -> Option<&ParentRoute> {
        let planned = self.streams.get(stream)?;
        let is_same = planned.origin.as_ref().is_none_or(|planned| planned == origin);
        planned.parent.as_ref().filter(|_| is_same)
    }
}
