//! The resolved topology: dense indices, and queries on them.

use super::{ClassPlan, CrossConfig, LinkConfig, PathTable, TopologyError};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};
use thalweg_units::Rate;

/// A network that is ready to be built and emulated.
///
/// Interfaces, links and paths are numbered from 0 over the whole network.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Seed of every random draw.
    pub seed: u64,
    /// Congestion control of all routes; `None`: the kernel's default.
    pub congestion: Option<String>,
    /// Width of the bins in the ground truth.
    pub bin: Duration,
    /// Hosts: first the written ones, then the generated ones.
    pub hosts: Vec<HostPlan>,
    /// Interfaces, host by host.
    pub interfaces: Vec<InterfacePlan>,
    /// The directions of links: `x.fwd` and `x.rev`, or `x` for a simplex link.
    pub links: Vec<LinkPlan>,
    /// The distinct sequences of links; an empty one delivers at once.
    pub paths: Vec<Vec<usize>>,
    /// The path between each ordered pair of interfaces.
    pub table: PathTable,
    /// Cross traffic.
    pub cross: Vec<CrossPlan>,
    /// Traffic classes; a packet belongs to the first class that matches.
    pub classes: Vec<ClassPlan>,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlan {
    pub name: String,
    /// Its additional names.
    pub names: Vec<String>,
    /// Its interfaces, as indices into [`Resolved::interfaces`]; `wan0` is the first.
    pub interfaces: Vec<usize>,
}

/// An interface with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfacePlan {
    /// The index of its host.
    pub host: usize,
    /// Its number k within the host, from 0.
    pub index: usize,
    /// `10.(k+1).(h/256).(h%256)`, h from 1; prefix length 16.
    pub v4: Ipv4Addr,
    /// `fd54:(k+1)::h`; prefix length 64.
    pub v6: Ipv6Addr,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkPlan {
    /// The link's name with the direction: `core.fwd`.
    pub name: String,
    /// The configuration for the emulator.
    pub config: LinkConfig,
    /// Seed of its random generator.
    pub seed: u64,
}

/// Cross traffic on one direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossPlan {
    /// The index of the link.
    pub link: usize,
    /// The configuration for the emulator.
    pub config: CrossConfig,
    /// Seed of its random generator.
    pub seed: u64,
}

impl Resolved {
    /// The interface with this address.
    pub fn interface_of(&self, address: IpAddr) -> Option<usize> {
        let (k, h) = match address {
            IpAddr::V4(v4) => {
                let [ten, k, high, low] = v4.octets();
                (ten == 10).then_some(())?;
                (usize::from(k), usize::from(high) << 8 | usize::from(low))
            }
            IpAddr::V6(v6) => {
                let [prefix, k, 0, 0, 0, 0, 0, h] = v6.segments() else { return None };
                (prefix == 0xfd54).then_some(())?;
                (usize::from(k), usize::from(h))
            }
        };
        let host = self.hosts.get(h.checked_sub(1)?)?;
        host.interfaces.get(k.checked_sub(1)?).copied()
    }

    /// The interface that `host:k` or `host` (its first interface) names.
    ///
    /// # Errors
    /// [`TopologyError::Unknown`] with the nearest host, or [`TopologyError::Conflict`] if k is out of range.
    pub fn interface_named(&self, text: &str) -> Result<usize, TopologyError> {
        let (name, k) = text.split_once(':').unwrap_or((text, "0"));
        let at = || format!("interface {text}");
        let host = self.hosts.iter().find(|h| h.name == name).ok_or_else(|| {
            TopologyError::unknown(at(), "host", name, self.hosts.iter().map(|h| &*h.name))
        })?;
        let found = k.parse::<usize>().ok().and_then(|k| host.interfaces.get(k));
        let n = host.interfaces.len();
        let why = || format!("`{name}` has {n} interface(s), numbered from 0");
        found.copied().ok_or_else(|| TopologyError::conflict(at(), why()))
    }

    /// The directions that a name means: both for `core`, one for `core.fwd` or `core.rev`.
    ///
    /// # Errors
    /// [`TopologyError::Unknown`] with the nearest name.
    pub fn link_indices(&self, name: &str) -> Result<Vec<usize>, TopologyError> {
        let whole = |l: &LinkPlan| base_name(&l.name) == name || l.name == name;
        let found: Vec<_> = (0..self.links.len()).filter(|&i| whole(&self.links[i])).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let names = self.links.iter().flat_map(|l| [base_name(&l.name), &l.name]);
        Err(TopologyError::unknown("link", "link", name, names))
    }

    /// The links from one interface to another; `None` without a path.
    pub fn path_links(&self, from: usize, to: usize) -> Option<&[usize]> {
        self.table.get(from, to).map(|p| self.paths[p].as_slice())
    }

    /// The highest possible rate from one interface to another: the smallest rate on the path.
    ///
    /// A link with a trace counts with its largest rate. Zero without a path; `None` without a limit.
    pub fn physical_limit(&self, from: usize, to: usize) -> Option<Rate> {
        let Some(links) = self.path_links(from, to) else { return Some(Rate::ZERO) };
        links.iter().filter_map(|&l| self.links[l].config.peak_rate()).min()
    }

    /// The round-trip time without queues: the sum of the delays in both directions.
    ///
    /// `None` if either path is missing.
    pub fn rtt(&self, from: usize, to: usize) -> Option<Duration> {
        let one_way = |a, b| -> Option<Duration> {
            Some(self.path_links(a, b)?.iter().map(|&l| self.links[l].config.delay).sum())
        };
        Some(one_way(from, to)? + one_way(to, from)?)
    }
}

/// The link's name without the direction: `core` for `core.fwd`.
fn base_name(name: &str) -> &str {
    name.strip_suffix(".fwd").or_else(|| name.strip_suffix(".rev")).unwrap_or(name)
}
