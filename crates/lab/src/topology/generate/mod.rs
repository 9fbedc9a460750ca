//! Generates networks: hosts, links and paths from a few parameters.
//!
//! A generator produces what a user could have written. A host or link that the topology gives explicitly overrides the
//! properties of the generated one with the same name.

mod cloud;
mod collection;
mod dumbbell;
mod matrix;
mod multihomed;
mod planetlab;
mod star;
mod transit_stub;

pub use cloud::GRID;
pub use collection::Collection;
pub use dumbbell::Dumbbell;
pub use matrix::{Matrix, Synthetic};
pub use multihomed::Multihomed;
pub use star::Star;
pub use transit_stub::TransitStub;

use super::{HostSpec, LinkSpec, PathSpec, TopologyError};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// `[generate]`: the kind of network, each with its own keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Generate {
    /// Two groups of hosts on either side of one link.
    Dumbbell(Dumbbell),
    /// Hosts around an unlimited core.
    Star(Star),
    /// A link per pair, with its own rate and round-trip time.
    Matrix(Matrix),
    /// Transit routers, stub networks, hosts.
    TransitStub(Box<TransitStub>),
    /// The network of the evaluation of coordinated collection.
    Collection(Collection),
    /// A client with several interfaces, and a server.
    Multihomed(Multihomed),
}

/// The output of a generator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generated {
    /// Hosts by name, in order.
    pub hosts: IndexMap<String, HostSpec>,
    /// Links by name, in order.
    pub links: IndexMap<String, LinkSpec>,
    /// Paths; each pair of hosts once, with its return path.
    pub paths: Vec<PathSpec>,
}

/// A number of hosts, or their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a number of hosts or a list of their names")]
pub enum Hosts {
    /// This many hosts: `h1`, `h2` …
    Count(usize),
    /// Hosts with these names.
    Names(Vec<String>),
}

/// The most hosts; all pairs of more would take gigabytes during generation.
const HOSTS_MAX: usize = 1_000;

impl Generate {
    /// Generates the network; `seed` is the topology's.
    ///
    /// # Errors
    /// If the number of hosts is out of range, a matrix is not n×n, or a value is invalid.
    pub fn expand(&self, seed: u64) -> Result<Generated, TopologyError> {
        match self {
            Self::Dumbbell(d) => d.expand(),
            Self::Star(s) => s.expand(),
            Self::Matrix(m) => m.expand(seed),
            Self::TransitStub(t) => t.expand(seed),
            Self::Collection(c) => c.expand(seed),
            Self::Multihomed(m) => m.expand(),
        }
    }
}

impl Generated {
    fn host(&mut self, name: &str) {
        self.hosts.insert(name.to_owned(), HostSpec::default());
    }

    fn link(&mut self, name: String, link: &LinkSpec) {
        self.links.insert(name, link.clone());
    }

    fn path(&mut self, from: &str, to: &str, links: Vec<String>) {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.paths.push(PathSpec { from, to, links, back: None, oneway: false });
    }
}

impl Hosts {
    fn names(&self) -> Result<Vec<String>, TopologyError> {
        let names = match self {
            Self::Count(n) => {
                check_count("hosts", *n)?;
                (1..=*n).map(|i| format!("h{i}")).collect()
            }
            Self::Names(names) => names.clone(),
        };
        check_count("hosts", names.len())?;
        if let Some(twice) = (1..names.len()).find(|&i| names[..i].contains(&names[i])) {
            return Err(TopologyError::value("generate.hosts", &names[twice], "is listed twice"));
        }
        Ok(names)
    }
}

fn check_count(key: &str, n: usize) -> Result<(), TopologyError> {
    if (1..=HOSTS_MAX).contains(&n) {
        return Ok(());
    }
    let why = format!("must be 1 to {HOSTS_MAX}");
    Err(TopologyError::value(format!("generate.{key}"), n, why))
}

/// The name of the link from a host to the network; forward is from the host.
fn access_name(host: &str) -> String {
    format!("{host}.access")
}

fn upstream_link(host: &str) -> String {
    format!("{host}.access.fwd")
}

fn downstream_link(host: &str) -> String {
    format!("{host}.access.rev")
}

/// All pairs (a, b) of names with a before b.
fn pairs(names: &[String]) -> impl Iterator<Item = (&str, &str)> {
    let later = move |i: usize| names[i + 1..].iter().map(move |b| (names[i].as_str(), b.as_str()));
    (0..names.len()).flat_map(later)
}
