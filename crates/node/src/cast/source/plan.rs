//! Who is to get the object from whom.

use super::{rings::Forwarding, share::shares};
use crate::gather::Estimates;
use std::collections::BTreeMap;
use thalweg_plan::{
    Graph,
    tree::{Access, EFFORT, Host, Keeps, Overlay, Role, depth::ChainLoss},
};
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::{
    cast::{Candidate, Expected, MAX_CANDIDATES, MAX_WAY, Want},
    mesh::Name,
};

/// One receiver's part in the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its parents, the best first.
    pub candidates: Vec<Candidate>,
    /// How many of them at a time.
    pub at_once: u32,
    /// The slowest hop on the widest way to it.
    pub min_hop_bps: Option<u64>,
    /// What the plan expects.
    pub expected_bps: Option<u64>,
    /// Whom the plan has between the source and it, from the source on.
    pub way: Vec<Name>,
}

impl Part {
    /// As the receiver hears it.
    pub fn expected(&self, receivers: usize) -> Expected {
        Expected {
            min_hop_bps: self.min_hop_bps,
            bps: self.expected_bps,
            way: self.way.clone(),
            receivers: u32::try_from(receivers).unwrap_or(u32::MAX),
        }
    }
}

/// Parents for all receivers, from what is known of the legs. `here`: the source.
///
/// The planned tree's parent first, then those with most to spare; or several at a time where they add
/// up. What the rates do not reach is asked of the source first, and then of the others, each beginning
/// with another one.
pub fn plan(
    here: &Name,
    to: &[Name],
    estimates: &Estimates,
    at_once: u32,
    forwarding: &Forwarding,
) -> BTreeMap<Name, Part> {
    let names: Vec<&Name> = std::iter::once(here).chain(to).chain(&forwarding.via).collect();
    let is_relay = |at: usize| at > to.len();
    let ring = Keeps::Ring(ByteSize::from_bytes(forwarding.ring_bytes));
    let mut graph = Graph::new(names.len());
    for (i, from) in names.iter().enumerate() {
        for (j, to) in names.iter().enumerate().filter(|(j, _)| *j != i) {
            graph.set(i, j, estimates.leg(from, to).rate);
        }
    }
    let none = Access::default();
    let host = |at: usize| Host {
        role: match at {
            0 => Role::Absent,
            at if is_relay(at) => Role::Relay,
            _ => Role::Receiver,
        },
        keeps: if forwarding.by_rings || is_relay(at) { ring } else { Keeps::Store },
        access: Access::estimate(&graph, at, none, none),
        ..Host::RECEIVER
    };
    let hosts: Vec<Host> = (0..names.len()).map(host).collect();
    let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
    let planned = overlay.bounded(&ChainLoss::NONE, EFFORT);
    // From one that streams a node takes all: then a tree is what there is.
    let streams = forwarding.by_rings || !forwarding.via.is_empty();
    let shares = shares(&overlay, &planned, if streams { 1 } else { at_once as usize });
    let part = |node: usize| {
        let of = |at: usize| Some(at).filter(|at| *at != 0).map(|at| names[at].clone());
        let share = |share: &thalweg_plan::tree::Share| Candidate {
            name: of(share.parent),
            bps: Some(share.rate.as_bps()),
            want: Want::Pull,
        };
        let its = shares.get(node).cloned().unwrap_or_default();
        let mut candidates: Vec<Candidate> = its.parents.iter().map(share).collect();
        let unknown = |at: &usize| candidates.iter().all(|known| known.name != of(*at));
        let rest: Vec<usize> = others(names.len(), node).filter(unknown).collect();
        let unknown = |at: usize| Candidate { name: of(at), bps: None, want: Want::Pull };
        candidates.extend(rest.into_iter().map(unknown));
        candidates.truncate(MAX_CANDIDATES);
        let known = |rate: Rate| Some(rate.as_bps()).filter(|bps| *bps > 0);
        let min_hop_bps = planned.ceilings.get(node).copied().and_then(known);
        let (expected_bps, at_once) = (known(its.rate), at_once.max(its.at_once as u32));
        let way = Vec::new();
        (names[node].clone(), Part { candidates, at_once, min_hop_bps, expected_bps, way })
    };
    let mut parts: BTreeMap<Name, Part> = (1..names.len()).map(part).collect();
    forwarding.decide(&mut parts);
    let ways: Vec<Vec<Name>> = parts.keys().map(|name| way(here, &parts, name)).collect();
    for (part, way) in parts.values_mut().zip(ways) {
        part.way = way;
    }
    parts
}

/// First parents, from the source to the one of this receiver; the source alone if they lead in a
/// circle, as those may that have several parents each.
fn way(here: &Name, parts: &BTreeMap<Name, Part>, to: &Name) -> Vec<Name> {
    let mut way = Vec::new();
    let mut at = to;
    while way.len() + 1 < MAX_WAY.min(parts.len() + 1) {
        let first = parts.get(at).and_then(|part| part.candidates.first());
        let Some(parent) = first.and_then(|candidate| candidate.name.as_ref()) else { break };
        if parent == to {
            way.clear();
            break;
        }
        way.push(parent.clone());
        at = parent;
    }
    way.push(here.clone());
    way.reverse();
    way
}

/// The source, then the others from the next one on.
fn others(nodes: usize, node: usize) -> impl Iterator<Item = usize> {
    let next = (node + 1..nodes).chain(1..node);
    std::iter::once(0).chain(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(texts: &[&str]) -> Vec<Name> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn order(part: &Part) -> Vec<String> {
        let name = |c: &Candidate| c.name.as_ref().map_or("source".to_owned(), Name::to_string);
        part.candidates.iter().map(name).collect()
    }

    #[test]
    fn the_trees_parent_comes_first_and_the_source_is_always_there() {
        let text = "from,to,rate\ns,a,40 Mbit/s\ns,b,10 Mbit/s\na,b,30 Mbit/s\nb,c,20 Mbit/s\n";
        let estimates = Estimates::parse(text).unwrap();
        let here: Name = "s".parse().unwrap();
        let parts = plan(&here, &names(&["a", "b", "c"]), &estimates, 2, &Forwarding::default());
        let part = |name: &str| &parts[&name.parse::<Name>().unwrap()];
        assert_eq!(order(part("a"))[0], "source");
        assert_eq!(order(part("b"))[0], "a");
        assert_eq!(order(part("c"))[0], "b");
        assert!(parts.values().all(|part| order(part).contains(&"source".to_owned())));
        assert_eq!(part("c").min_hop_bps, Some(20_000_000));
        assert_eq!(part("c").way, names(&["s", "a", "b"]));
    }

    #[test]
    fn without_rates_all_ask_the_source_and_each_other() {
        let here: Name = "s".parse().unwrap();
        let parts =
            plan(&here, &names(&["a", "b", "c"]), &Estimates::default(), 2, &Forwarding::default());
        for part in parts.values() {
            let first = (order(part)[0].clone(), part.candidates.len(), part.min_hop_bps);
            assert_eq!(first, ("source".to_owned(), 3, None));
        }
        let second = |name: &str| order(&parts[&name.parse::<Name>().unwrap()])[1].clone();
        assert_eq!(["a", "b", "c"].map(second), ["b", "c", "a"]);
    }
}
