//! Networks by rule: hosts, links and paths from a few numbers.
//!
//! A generator writes what a user could have written, so that a written host
//! or link with the same name is laid over the generated one.

mod collection;
mod dumbbell;
mod matrix;
mod multihomed;
mod planetlab;
mod star;
mod transit_stub;

pub use collection::Collection;
pub use dumbbell::Dumbbell;
pub use matrix::{Matrix, Synthetic};
pub use multihomed::Multihomed;
pub use star::Star;
pub use transit_stub::TransitStub;

use super::{HostSpec, LinkSpec, PathSpec, TopologyError};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// `[generate]`: one of the kinds, each with its own keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Generate {
    /// Two groups of hosts on either side of one link.
    Dumbbell(Dumbbell),
    /// Hosts around a core that limits nothing.
    Star(Star),
    /// A link per pair, with its own rate and round trip.
    Matrix(Matrix),
    /// Transit routers, stub networks, hosts.
    TransitStub(Box<TransitStub>),
    /// The network of the evaluation of coordinated collection.
    Collection(Collection),
    /// One client with several interfaces, one server.
    Multihomed(Multihomed),
}

/// What a generator wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generated {
    /// Hosts by name, in order.
    pub hosts: IndexMap<String, HostSpec>,
    /// Links by name, in order.
    pub links: IndexMap<String, LinkSpec>,
    /// Paths; each pair of hosts once, with its way back.
    pub paths: Vec<PathSpec>,
}

/// So many hosts, or hosts of these names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a number of hosts or a list of their names")]
pub enum Hosts {
    /// `h1`, `h2` …
    Count(usize),
    /// These.
    Names(Vec<String>),
}

/// All pairs of more hosts than this would take gigabytes while they are laid out.
const HOSTS_MAX: usize = 1_000;

impl Generate {
    /// Writes out the network; `seed` is the topology's.
    ///
    /// # Errors
    /// Numbers of hosts out of range, matrices that are not n×n, values that cannot be read.
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
            return Err(TopologyError::value("generate.hosts", &names[twice], "is there twice"));
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

/// The link from a host to the network; its forward half carries what the host sends.
fn access_name(host: &str) -> String {
    format!("{host}.access")
}

fn up(host: &str) -> String {
    format!("{host}.access.fwd")
}

fn down(host: &str) -> String {
    format!("{host}.access.rev")
}

/// All pairs (a, b) with a before b.
fn pairs(names: &[String]) -> impl Iterator<Item = (&str, &str)> {
    let later = move |i: usize| names[i + 1..].iter().map(move |b| (names[i].as_str(), b.as_str()));
    (0..names.len()).flat_map(later)
}
