//! The path table: the links from each interface to each other one.

use super::{DefaultPath, PathSpec, TopologyError, plan::InterfacePlan};
use std::collections::BTreeMap;

/// The path number of each ordered pair of interfaces: `table[from][to]`, n×n, row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTable {
    n: usize,
    cells: Vec<u32>,
}

const NO_PATH: u32 = u32::MAX;

impl PathTable {
    fn new(n: usize) -> Self {
        Self { n, cells: vec![NO_PATH; n * n] }
    }

    /// The path from one interface to another; `None` if there is none or an index is out of range.
    pub fn get(&self, from: usize, to: usize) -> Option<usize> {
        if from >= self.n || to >= self.n {
            return None;
        }
        let path = self.cells[from * self.n + to];
        (path != NO_PATH).then_some(path as usize)
    }

    /// The number of interfaces n.
    pub fn interfaces(&self) -> usize {
        self.n
    }
}

/// The indices of the forward and reverse directions of each link, by name.
pub(super) type Halves = BTreeMap<String, (usize, Option<usize>)>;

/// Builds the path table; more specific paths replace less specific ones.
pub(super) struct Layout<'a> {
    interfaces: &'a [InterfacePlan],
    /// The interfaces of each host, by name.
    hosts: BTreeMap<&'a str, &'a [usize]>,
    halves: &'a Halves,
    paths: Vec<Vec<usize>>,
    known: BTreeMap<Vec<usize>, u32>,
    table: PathTable,
    /// How specific the path was that set each cell.
    ranks: Vec<u8>,
}

/// The links of a path in both directions as indices; `None`: no return path.
struct PathLinks {
    there: Vec<usize>,
    back: Option<Vec<usize>>,
}

/// The origin of a path: a written path takes precedence over a generated one. Of two written paths the more specific
/// one wins, and equally specific ones conflict.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Generated,
    Written,
}

impl<'a> Layout<'a> {
    pub(super) fn new(
        hosts: impl Iterator<Item = (&'a str, &'a [usize])>,
        interfaces: &'a [InterfacePlan],
        halves: &'a Halves,
    ) -> Self {
        let n = interfaces.len();
        Self {
            interfaces,
            hosts: hosts.collect(),
            halves,
            paths: Vec::new(),
            known: BTreeMap::new(),
            table: PathTable::new(n),
            ranks: vec![0; n * n],
        }
    }

    /// Adds a path and its return path. `at` names it in errors.
    pub(super) fn add_path(
        &mut self,
        spec: &PathSpec,
        origin: Origin,
        at: &str,
    ) -> Result<(), TopologyError> {
        let (from, from_named) = self.endpoint(&spec.from, at)?;
        let (to, to_named) = self.endpoint(&spec.to, at)?;
        if self.interfaces[from[0]].host == self.interfaces[to[0]].host {
            return Err(TopologyError::conflict(at, "a path must connect two different hosts"));
        }
        let ways = self.resolve_links(&spec.links, spec.back.as_deref(), spec.oneway, at)?;
        let rank = match origin {
            Origin::Generated => 1,
            Origin::Written => 2 + u8::from(from_named) + u8::from(to_named),
        };
        let there = self.intern(ways.there);
        let back = ways.back.map(|b| self.intern(b));
        for (&a, &b) in from.iter().flat_map(|a| to.iter().map(move |b| (a, b))) {
            self.set_path(a, b, there, rank, at)?;
            if let Some(back) = back {
                self.set_path(b, a, back, rank, at)?;
            }
        }
        Ok(())
    }

    /// Sets the default path for all pairs of interfaces of different hosts that have no path.
    pub(super) fn add_default_path(&mut self, spec: &DefaultPath) -> Result<(), TopologyError> {
        let ways = self.resolve_links(&spec.links, spec.back.as_deref(), false, "default")?;
        let there = self.intern(ways.there);
        let back = self.intern(ways.back.unwrap_or_default());
        let n = self.table.n;
        for (a, b) in (0..n).flat_map(|a| (0..n).map(move |b| (a, b))) {
            let (host_a, host_b) = (self.interfaces[a].host, self.interfaces[b].host);
            let cell = &mut self.table.cells[a * n + b];
            if *cell == NO_PATH && host_a != host_b {
                *cell = if host_a < host_b { there } else { back };
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> (Vec<Vec<usize>>, PathTable) {
        (self.paths, self.table)
    }

    fn set_path(
        &mut self,
        a: usize,
        b: usize,
        path: u32,
        rank: u8,
        at: &str,
    ) -> Result<(), TopologyError> {
        let i = a * self.table.n + b;
        if self.ranks[i] == rank && self.table.cells[i] != path {
            let why = "this pair already has another path; give the way back as `back`, \
                       or write `oneway = true` on both";
            return Err(TopologyError::conflict(at, why));
        }
        if self.ranks[i] <= rank {
            (self.ranks[i], self.table.cells[i]) = (rank, path);
        }
        Ok(())
    }

    fn intern(&mut self, links: Vec<usize>) -> u32 {
        let next = self.paths.len() as u32;
        *self.known.entry(links).or_insert_with_key(|links| {
            self.paths.push(links.clone());
            next
        })
    }

    /// The interfaces that `host` or `host:k` names (at least one), and whether k was given.
    fn endpoint(&self, text: &str, at: &str) -> Result<(&'a [usize], bool), TopologyError> {
        let (name, k) = match text.split_once(':') {
            Some((name, k)) => (name, Some(k)),
            None => (text, None),
        };
        let all = *self
            .hosts
            .get(name)
            .ok_or_else(|| TopologyError::unknown(at, "host", name, self.hosts.keys().copied()))?;
        let Some(k) = k else { return Ok((all, false)) };
        let one = k.parse::<usize>().ok().and_then(|k| all.get(k..=k));
        let n = all.len();
        let why = || format!("`{text}`: `{name}` has {n} interface(s), numbered from 0");
        Ok((one.ok_or_else(|| TopologyError::conflict(at, why()))?, true))
    }

    fn resolve_links(
        &self,
        links: &[String],
        back: Option<&[String]>,
        oneway: bool,
        at: &str,
    ) -> Result<PathLinks, TopologyError> {
        let each = |names: &[String], reverse| -> Result<Vec<usize>, TopologyError> {
            names.iter().map(|name| self.half(name, reverse, at)).collect()
        };
        let there = each(links, false)?;
        let back = match (back, oneway) {
            (Some(_), true) => {
                return Err(TopologyError::conflict(at, "`oneway` and `back` exclude each other"));
            }
            (None, true) => None,
            (Some(back), false) => Some(each(back, true)?),
            (None, false) => Some(self.reversed(links, at)?),
        };
        Ok(PathLinks { there, back })
    }

    /// The opposite directions of these links in reverse order.
    fn reversed(&self, links: &[String], at: &str) -> Result<Vec<usize>, TopologyError> {
        let other = |name: &String| {
            let half = match (name.strip_suffix(".fwd"), name.strip_suffix(".rev")) {
                (Some(base), _) => format!("{base}.rev"),
                (_, Some(base)) => format!("{base}.fwd"),
                _ if self.halves.get(name).is_some_and(|h| h.1.is_none()) => {
                    let why = format!(
                        "link `{name}` is simplex and has no way back; \
                         give `back = […]`, or `oneway = true`"
                    );
                    return Err(TopologyError::conflict(at, why));
                }
                _ => name.clone(),
            };
            self.half(&half, true, at)
        };
        links.iter().rev().map(other).collect()
    }

    /// The index of a link by name. For a duplex link without `.fwd` or `.rev` it is the reverse direction if
    /// `reverse`, else the forward one.
    fn half(&self, name: &str, reverse: bool, at: &str) -> Result<usize, TopologyError> {
        if let Some(&(fwd, rev)) = self.halves.get(name) {
            return Ok(if reverse { rev.unwrap_or(fwd) } else { fwd });
        }
        let of = |suffix| name.strip_suffix(suffix).and_then(|base| self.halves.get(base));
        match (of(".fwd"), of(".rev")) {
            (Some(&(fwd, Some(_))), _) => Ok(fwd),
            (_, Some(&(_, Some(rev)))) => Ok(rev),
            _ => {
                let names = self.halves.keys().map(String::as_str);
                Err(TopologyError::unknown(at, "link", name, names))
            }
        }
    }
}
