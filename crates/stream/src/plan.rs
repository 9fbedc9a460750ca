//! What the global scheduler has told this node.

use crate::Quality;
use serde::Serialize;
use std::{collections::BTreeMap, fmt, str::FromStr};
use thalweg_wire::mesh::{Name, NameError};

/// The configuration of this node's streams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Its version at the oracle; zero: there is none yet.
    pub version: u64,
    /// By stream.
    pub streams: BTreeMap<Name, Planned>,
}

/// One stream of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Planned {
    /// Where it is taken from; `None`: it is published here, or the plan does not say.
    pub parent: Option<Way>,
    /// What goes to which child.
    pub children: BTreeMap<Name, Ordered>,
    /// Why it may not be published here; none: it may.
    pub refused: Option<String>,
}

/// What goes over one leg, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Ordered {
    /// It.
    pub quality: Quality,
    /// In words.
    pub why: String,
    /// The estimate that justified it, bit/s, and how old that was, seconds.
    pub estimate: Option<(f64, f64)>,
}

/// From whom a stream is taken, and through which relays, the nearest to this node first: `relay+node`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Way {
    /// The parent.
    pub node: Name,
    /// Relays.
    pub via: Vec<Name>,
}

impl Way {
    /// Without relays.
    pub fn direct(node: Name) -> Self {
        Self { node, via: Vec::new() }
    }
}

impl FromStr for Way {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut names = text.split('+').map(str::parse).collect::<Result<Vec<Name>, _>>()?;
        // `split` gives one piece at least.
        let node = names.pop().map_or_else(|| text.parse(), Ok)?;
        Ok(Self { node, via: names })
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for relay in &self.via {
            write!(f, "{relay}+")?;
        }
        write!(f, "{}", self.node)
    }
}

impl From<Way> for String {
    fn from(way: Way) -> Self {
        way.to_string()
    }
}

impl Plan {
    /// What goes to this child; `None`: nothing is planned for it.
    pub fn ordered(&self, stream: &Name, child: &Name) -> Option<&Ordered> {
        self.streams.get(stream)?.children.get(child)
    }

    /// Where the stream is taken from.
    pub fn parent(&self, stream: &Name) -> Option<&Way> {
        self.streams.get(stream)?.parent.as_ref()
    }
}
