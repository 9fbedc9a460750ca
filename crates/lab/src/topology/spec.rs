//! A topology as written by a user or built by a test.

use super::{ClassSpec, CrossSpec, Generate, LinkSpec, TopologyError, text};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A network as written; docs/lab.md describes the TOML form.
///
/// Hosts and links keep the order of the file, which determines the addresses of hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Seed of every random draw; default 1.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Congestion control of all routes; absent: the kernel's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Width of the bins in the ground truth; default 100 ms, at least 1 ms.
    #[serde(default = "default_bin", with = "text::duration")]
    pub bin: Duration,
    #[serde(rename = "host", default, skip_serializing_if = "IndexMap::is_empty")]
    pub hosts: IndexMap<String, HostSpec>,
    #[serde(rename = "link", default, skip_serializing_if = "IndexMap::is_empty")]
    pub links: IndexMap<String, LinkSpec>,
    /// Paths between hosts.
    #[serde(rename = "path", default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathSpec>,
    /// The path of every pair without an explicit one.
    #[serde(rename = "default", skip_serializing_if = "Option::is_none")]
    pub default_path: Option<DefaultPath>,
    /// Cross traffic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cross: Vec<CrossSpec>,
    /// Traffic classes that are counted separately.
    #[serde(rename = "class", default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassSpec>,
    /// Generates hosts, links and paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generate: Option<Generate>,
}

/// `[host.NAME]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// The number of interfaces; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<usize>,
    /// Additional names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// `[[path]]`: the links from one host, or interface, to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathSpec {
    /// `host` (all its interfaces) or `host:interface`.
    pub from: String,
    /// As for `from`.
    pub to: String,
    /// Links in the order of travel. A duplex link means its `.fwd`, unless a direction is named.
    pub links: Vec<String>,
    /// Links of the return path in the order of travel. A duplex link means its `.rev`. Absent: the opposite directions
    /// of `links` in reverse order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back: Option<Vec<String>>,
    /// Whether there is no return path.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub oneway: bool,
}

/// `[default]`: the path between any two interfaces of different hosts without an explicit path, from the host that
/// comes first to the later one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefaultPath {
    /// As in [`PathSpec::links`].
    pub links: Vec<String>,
    /// As in [`PathSpec::back`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back: Option<Vec<String>>,
}

fn default_seed() -> u64 {
    1
}

fn default_bin() -> Duration {
    Duration::from_millis(100)
}

impl Default for Topology {
    /// An empty network with seed 1 and bins of 100 ms.
    fn default() -> Self {
        Self {
            seed: default_seed(),
            congestion: None,
            bin: default_bin(),
            hosts: IndexMap::new(),
            links: IndexMap::new(),
            paths: Vec::new(),
            default_path: None,
            cross: Vec::new(),
            classes: Vec::new(),
            generate: None,
        }
    }
}

impl Topology {
    /// Parses a topology file. [`resolve`](Self::resolve) checks whether it is consistent.
    ///
    /// # Errors
    /// [`TopologyError::Syntax`] with the line, the key or value, and the nearest valid key.
    pub fn from_toml(text: &str) -> Result<Self, TopologyError> {
        toml::from_str(text).map_err(|e| TopologyError::from_toml(&e))
    }

    /// Formats a topology file that [`from_toml`](Self::from_toml) parses.
    ///
    /// Rates have three decimals of their unit.
    ///
    /// # Errors
    /// [`TopologyError::Syntax`] for a seed beyond 2^63 − 1.
    pub fn to_toml(&self) -> Result<String, TopologyError> {
        toml::to_string(self).map_err(|e| {
            TopologyError::Syntax(format!("the topology (seed {}) as TOML: {e}", self.seed))
        })
    }

    /// Adds a host with one interface.
    pub fn host(mut self, name: &str) -> Self {
        self.hosts.insert(name.to_owned(), HostSpec::default());
        self
    }

    /// Adds a host with this many interfaces.
    pub fn host_with(mut self, name: &str, interfaces: usize) -> Self {
        let spec = HostSpec { interfaces: Some(interfaces), names: Vec::new() };
        self.hosts.insert(name.to_owned(), spec);
        self
    }

    /// Adds a link.
    pub fn link(mut self, name: &str, link: LinkSpec) -> Self {
        self.links.insert(name.to_owned(), link);
        self
    }

    /// Adds a path in both directions.
    pub fn path(mut self, from: &str, to: &str, links: &[&str]) -> Self {
        self.paths.push(PathSpec::new(from, to, links));
        self
    }
}

impl PathSpec {
    /// A path in both directions.
    pub fn new(from: &str, to: &str, links: &[&str]) -> Self {
        Self {
            from: from.to_owned(),
            to: to.to_owned(),
            links: links.iter().map(|&l| l.to_owned()).collect(),
            back: None,
            oneway: false,
        }
    }
}
