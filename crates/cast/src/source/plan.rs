//! Plans which parents each receiver gets.

use super::{
    hosts::hosts,
    predict::{PredictedRates, predict},
    rings::Forwarding,
    share::choose_parents,
};
use std::collections::BTreeMap;
use thalweg_paths::estimates::Estimates;
use thalweg_plan::{
    Graph,
    tree::{EFFORT, Overlay},
};
use thalweg_units::Rate;
use thalweg_wire::{
    cast::{Candidate, MAX_CANDIDATES, MAX_WAY, PlanExpectation, ServiceMode},
    mesh::Name,
};

/// One receiver's part in the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiverPlan {
    /// Its parents, the best first.
    pub candidates: Vec<Candidate>,
    /// The number of parents to use at a time.
    pub at_once: u32,
    /// The rate of the slowest hop on the widest path to it.
    pub min_hop_bps: Option<u64>,
    /// The rate that the plan expects.
    pub expected_bps: Option<u64>,
    /// The members between the source and the receiver in the plan, from the source on.
    pub way: Vec<Name>,
    /// Rates predicted by the formulas for that path, if enough is known of its legs.
    pub predicted: Option<PredictedRates>,
}

impl ReceiverPlan {
    /// The expectation as it is sent to the receiver.
    pub fn expected(&self, receivers: usize) -> PlanExpectation {
        PlanExpectation {
            min_hop_bps: self.min_hop_bps,
            bps: self.expected_bps,
            way: self.way.clone(),
            receivers: u32::try_from(receivers).unwrap_or(u32::MAX),
        }
    }
}

/// Plans parents for all receivers from the estimates of legs. `here` is the source.
///
/// A receiver's first parent is the one in the planned tree; then follow those with most spare capacity. Or there are
/// several at a time, where their rates add up. Members of unknown rate follow: the source first, then the others, each
/// receiver starting with another one. Leaves are nobody's parents.
pub fn plan(
    here: &Name,
    to: &[Name],
    estimates: &Estimates,
    at_once: u32,
    forwarding: &Forwarding,
) -> BTreeMap<Name, ReceiverPlan> {
    let names: Vec<&Name> = std::iter::once(here).chain(to).chain(&forwarding.via).collect();
    let mut graph = Graph::new(names.len());
    for (i, from) in names.iter().enumerate() {
        for (j, to) in names.iter().enumerate().filter(|(j, _)| *j != i) {
            graph.set(i, j, estimates.leg(from, to).rate);
        }
    }
    let hosts = hosts(&names, to.len(), &graph, estimates, forwarding);
    let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
    let planned = overlay.bounded(&forwarding.loss(), EFFORT);
    // A stream carries the whole object, so a receiver has one parent, as in a tree.
    let at_a_time = if forwarding.streams() { 1 } else { at_once as usize };
    let shares = choose_parents(&overlay, &planned, at_a_time);
    let part = |node: usize| {
        let of = |at: usize| Some(at).filter(|at| *at != 0).map(|at| names[at].clone());
        let share = |share: &thalweg_plan::tree::Share| Candidate {
            name: of(share.parent),
            bps: Some(share.rate.as_bps()),
            want: ServiceMode::Pull,
        };
        let its = shares.get(node).cloned().unwrap_or_default();
        let mut candidates: Vec<Candidate> = its.parents.iter().map(share).collect();
        let unknown = |at: &usize| candidates.iter().all(|known| known.name != of(*at));
        let may_give = |at: &usize| *at == 0 || hosts[*at].forwards;
        let rest: Vec<usize> = others(names.len(), node).filter(may_give).filter(unknown).collect();
        let unknown = |at: usize| Candidate { name: of(at), bps: None, want: ServiceMode::Pull };
        candidates.extend(rest.into_iter().map(unknown));
        candidates.truncate(MAX_CANDIDATES);
        let known = |rate: Rate| Some(rate.as_bps()).filter(|bps| *bps > 0);
        let min_hop_bps = planned.ceilings.get(node).copied().and_then(known);
        let (expected_bps, at_once) = (known(its.rate), at_once.max(its.at_once as u32));
        let part = ReceiverPlan {
            candidates,
            at_once,
            min_hop_bps,
            expected_bps,
            ..ReceiverPlan::default()
        };
        (names[node].clone(), part)
    };
    let mut parts: BTreeMap<Name, ReceiverPlan> = (1..names.len()).map(part).collect();
    forwarding.decide(&mut parts);
    let ways: Vec<Vec<Name>> = parts.keys().map(|name| way(here, &parts, name)).collect();
    for ((name, part), way) in parts.iter_mut().zip(ways) {
        part.predicted = predict(&way, name, estimates);
        part.way = way;
    }
    parts
}

/// The chain of first parents from the source to the parent of `to`; only the source if the chain is a cycle, which is
/// possible if receivers have several parents.
fn way(here: &Name, parts: &BTreeMap<Name, ReceiverPlan>, to: &Name) -> Vec<Name> {
    let mut way = Vec::new();
    let mut at = to;
    while way.len() + 1 < MAX_WAY.min(parts.len() + 1) {
        let first = parts.get(at).and_then(|part| part.candidates.first());
        let Some(parent) = first.and_then(|candidate| candidate.name.as_ref()) else { break };
        if parent == to || way.contains(parent) {
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

/// The source, then the other nodes from the next one on, cyclically.
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

    fn order(part: &ReceiverPlan) -> Vec<String> {
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

    /// A source `s` and receivers `a` to `h`, with this rate between any two.
    fn alike(rate: &str, more: &str) -> (Name, Vec<Name>, Estimates) {
        let all = names(&["s", "a", "b", "c", "d", "e", "f", "g", "h"]);
        let pairs = all.iter().flat_map(|u| all.iter().map(move |v| (u, v)));
        let legs = pairs.filter(|(u, v)| u != v);
        let leg = |(u, v)| format!("[[leg]]\nfrom = \"{u}\"\nto = \"{v}\"\nrate = \"{rate}\"\n");
        let text: String = legs.map(leg).chain(std::iter::once(more.to_owned())).collect();
        (all[0].clone(), all[1..].to_vec(), Estimates::parse(&text).unwrap())
    }

    fn deepest(parts: &BTreeMap<Name, ReceiverPlan>) -> usize {
        parts.values().map(|part| part.way.len()).max().unwrap()
    }

    fn slowest(parts: &BTreeMap<Name, ReceiverPlan>) -> u64 {
        parts.values().filter_map(|part| part.expected_bps).min().unwrap()
    }

    /// Each host can feed one child at full rate. Stores lose nothing with depth. Each ring loses 12 % of what its
    /// parent has, so the last one of a chain would have 21 Mbit/s; two children at half the rate are better.
    #[test]
    fn a_plan_of_rings_is_shallower_than_one_of_stores() {
        let (here, to, estimates) = alike("50 Mbit/s", "");
        let of = |forwarding: &Forwarding| plan(&here, &to, &estimates, 1, forwarding);
        let stores = of(&Forwarding::default());
        assert_eq!((deepest(&stores), slowest(&stores)), (8, 50_000_000));
        let rings = of(&Forwarding { by_rings: true, ..Forwarding::default() });
        assert!(deepest(&rings) < 8 && slowest(&rings) > 24_000_000, "{rings:?}");
        assert!(rings.values().all(|part| part.at_once == 1));
        let sized = |ring_bytes| {
            deepest(&of(&Forwarding { by_rings: true, ring_bytes, ..Forwarding::default() }))
        };
        let depths = [200_000, 1_000_000, 100_000_000].map(sized);
        assert!(
            depths[0] < depths[1] && depths[1] < depths[2],
            "small rings lose more: {depths:?}"
        );
        assert_eq!(depths[2], 8, "and large ones hardly anything");
    }

    const SENDS: &str = "[[host]]\nname = \"s\"\negress = \"100 Mbit/s\"\n\
                         [[host]]\nname = \"a\"\negress = \"150 Mbit/s\"\n\
                         [[host]]\nname = \"b\"\negress = \"150 Mbit/s\"\n";

    #[test]
    fn a_parents_egress_limits_the_number_of_its_children() {
        let (here, to, estimates) = alike("50 Mbit/s", SENDS);
        let parts = plan(&here, &to, &estimates, 1, &Forwarding::default());
        let children = |name: &str| {
            let its = |part: &&ReceiverPlan| order(part)[0] == name;
            parts.values().filter(its).count()
        };
        assert_eq!(slowest(&parts), 50_000_000);
        assert_eq!(
            deepest(&parts),
            2,
            "two below the source, three below each of those: {parts:?}"
        );
        assert_eq!(["source", "a", "b"].map(children), [2, 3, 3]);
    }

    #[test]
    fn a_host_below_the_leaf_rate_is_nobodys_parent() {
        let slow = "[[host]]\nname = \"c\"\negress = \"10 Mbit/s\"\n";
        let (here, to, estimates) = alike("50 Mbit/s", slow);
        let gives = |leaf_below: Option<Rate>, name: &str| {
            let forwarding = Forwarding { leaf_below, ..Forwarding::default() };
            let parts = plan(&here, &to, &estimates, 2, &forwarding);
            assert!(parts.len() == 8 && parts.values().all(|part| !part.candidates.is_empty()));
            parts.values().filter(|part| order(part).contains(&name.to_owned())).count()
        };
        assert!(gives(None, "c") > 0);
        assert_eq!(gives(Some(Rate::from_mbps(10.5)), "c"), 0);
        // For the others, 50 Mbit/s were measured.
        assert!(gives(Some(Rate::from_mbps(10.5)), "d") > 0);
        assert_eq!(gives(Some(Rate::from_mbps(51.0)), "d"), 0);
        assert_eq!(gives(Some(Rate::from_mbps(51.0)), "source"), 8);
    }

    /// The predictions follow the path in the tree, not the candidates.
    #[test]
    fn predictions_follow_the_planned_path() {
        let text = "from,to,rate,rtt\ns,a,40 Mbit/s,20 ms\ns,b,10 Mbit/s,20 ms\na,b,30 Mbit/s,20 ms\n\
                    b,c,20 Mbit/s,\n";
        let estimates = Estimates::parse(text).unwrap();
        let here: Name = "s".parse().unwrap();
        let parts = plan(&here, &names(&["a", "b", "c"]), &estimates, 1, &Forwarding::default());
        let of = |name: &str| parts[&name.parse::<Name>().unwrap()].predicted;
        let b = of("b").unwrap();
        assert!(b.eq2_bps.abs_diff(30_000_000) < 1_000, "{b:?}");
        assert!(b.eq3_bps < 15_000_000 && of("c").is_none(), "{b:?}");
    }

    #[test]
    fn without_rates_all_receivers_use_the_source_and_each_other() {
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
