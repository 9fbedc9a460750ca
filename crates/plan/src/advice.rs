//! Where one more relay would help most (ours; UKAIRO leaves open which hosts join).
//!
//! The model: a *relay like X* is a new relay at the place of node X, whose legs have X's measured rates. Its detour
//! from i to j is as fast as the slower of X's two legs (UKAIRO §2.1). It counts for what it adds to the best of the
//! direct path and the detours by present relays. For a member that does not relay, that is the gain of letting it
//! relay. For a member that does, a second relay at its place would add capacity but no rate; for these, the advice
//! says what the mesh gains by this relay alone, and how many pairs depend on it.
//!
//! Limits of the model: rates are measured under little load; another host at the same provider has other paths; pairs
//! that are not measured count as gaining nothing, so gains are lower bounds; and all pairs count alike, however much
//! they are used.

use crate::{Graph, ranking::MOST_GAIN};
use std::collections::BTreeMap;
use thalweg_units::Rate;

/// UKAIRO's definition of a detour worth having (§2.1): 20 % and 1 Mbit/s more than the direct path.
pub const GOOD_GAIN: f64 = 0.2;
/// See [`GOOD_GAIN`].
pub const GOOD_MORE: Rate = Rate::from_bps(1_000_000);

/// What a relay at the place of one node would bring, or what the relay there brings now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RelaySite {
    pub node: usize,
    /// Whether it relays now.
    pub is_relay: bool,
    /// The mean of what a relay like this node adds to the present best, as a fraction of the direct rate, from 0 up.
    /// The mean is over all measured pairs without an end at this node. 0 for relays.
    pub adds: f64,
    /// The number of pairs without a good detour to which it would give one.
    pub helps: u64,
    /// For relays: the mean, over the same pairs, of what would be lost without this relay; otherwise 0.
    pub gives: f64,
    /// For relays: the number of pairs whose best detour goes by this relay and is good.
    pub carries: u64,
    /// The number of pairs (i,j) without an end at this node of which all three legs are measured.
    pub evidence: u64,
}

impl RelaySite {
    /// [`RelaySite::adds`] or [`RelaySite::gives`]: the worth of a relay at this node.
    pub fn worth(&self) -> f64 {
        if self.is_relay { self.gives } else { self.adds }
    }
}

/// A measured pair for which no present relay is a good detour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoorPair {
    pub from: usize,
    pub to: usize,
    pub direct: Rate,
    /// The rate of the best detour by a present relay; `None` if none is measured.
    pub detour: Option<Rate>,
    /// The node that would give the fastest good detour if it relayed, and that detour's rate.
    pub cure: Option<(usize, Rate)>,
}

/// The advice for a whole mesh.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advice {
    /// The number of measured pairs.
    pub pairs: u64,
    /// The number of measured pairs with a good detour by a present relay.
    pub good: u64,
    /// The mean gain of the best present detour over the measured pairs.
    pub gain: f64,
    /// All nodes. Nodes that do not relay come first, sorted by what they would add, then the relays, sorted by what
    /// they give. Ties go to the lower index.
    pub sites: Vec<RelaySite>,
    /// Pairs without a good detour, the slowest direct path first.
    pub poor: Vec<PoorPair>,
}

/// Nodes that have something in common, e.g. a tag.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbourhood {
    /// What they have in common.
    pub name: String,
    pub nodes: Vec<usize>,
    /// The mean of [`RelaySite::worth`] there.
    pub worth: f64,
}

/// Judges every node as a place for a relay, from measured rates.
///
/// `is_relay(l)` says whether node l relays now. At most `most` poor pairs are listed. O(Σ d) over all measured pairs
/// for d legs at a node: n³ in a full mesh.
pub fn advise(graph: &Graph, is_relay: impl Fn(usize) -> bool, most: usize) -> Advice {
    let mut tally = MeshTally::new(graph.nodes());
    let mut poor = Vec::new();
    for ((i, j), direct) in graph.legs() {
        let pair = MeasuredPair::of(graph, (i, j), direct, &is_relay);
        tally.add(graph, &pair, &is_relay);
        poor.extend(pair.poor(graph, &is_relay));
    }
    poor.sort_by_key(|p| (p.direct, p.from, p.to));
    poor.truncate(most);
    tally.advice(&is_relay, poor)
}

/// The mean worth of the nodes of each tag, the highest first; `tags` are node indices by tag. A tag of a single node
/// says no more than the node and is left out.
pub fn neighbourhoods(advice: &Advice, tags: &BTreeMap<String, Vec<usize>>) -> Vec<Neighbourhood> {
    let worth: BTreeMap<usize, f64> = advice.sites.iter().map(|s| (s.node, s.worth())).collect();
    let mean = |nodes: &[usize]| {
        let all: f64 = nodes.iter().filter_map(|node| worth.get(node)).sum();
        all / nodes.len() as f64
    };
    let several = tags.iter().filter(|(_, nodes)| nodes.len() > 1);
    let mut found: Vec<Neighbourhood> = several
        .map(|(name, nodes)| Neighbourhood {
            name: name.clone(),
            nodes: nodes.clone(),
            worth: mean(nodes),
        })
        .collect();
    found.sort_by(|a, b| b.worth.total_cmp(&a.worth));
    found
}

/// One measured pair with its two best present relays.
struct MeasuredPair {
    ends: (usize, usize),
    direct: Rate,
    best: Option<(usize, Rate)>,
    second: Rate,
}

impl MeasuredPair {
    fn of(
        graph: &Graph,
        ends: (usize, usize),
        direct: Rate,
        is_relay: &impl Fn(usize) -> bool,
    ) -> Self {
        let mut pair = Self { ends, direct, best: None, second: Rate::ZERO };
        for (l, rate) in graph.detours(ends.0, ends.1).filter(|(l, _)| is_relay(*l)) {
            if pair.best.is_none_or(|(_, best)| rate > best) {
                pair.second = pair.best.map_or(Rate::ZERO, |(_, best)| best);
                pair.best = Some((l, rate));
            } else {
                pair.second = pair.second.max(rate);
            }
        }
        pair
    }

    /// The rate that a client gets now: the better of the direct path and the best detour.
    fn now(&self) -> Rate {
        self.best.map_or(self.direct, |(_, rate)| rate.max(self.direct))
    }

    /// The gain of `rate` over the direct path, as a fraction of the direct rate, at most [`MOST_GAIN`].
    fn gain(&self, rate: Rate) -> f64 {
        crate::graph::gain(self.direct, rate).min(MOST_GAIN)
    }

    fn is_good(&self, rate: Rate) -> bool {
        let more = rate.as_bps().saturating_sub(self.direct.as_bps());
        self.gain(rate) >= GOOD_GAIN && more >= GOOD_MORE.as_bps()
    }

    fn poor(&self, graph: &Graph, is_relay: &impl Fn(usize) -> bool) -> Option<PoorPair> {
        if self.is_good(self.now()) {
            return None;
        }
        let (from, to) = self.ends;
        let others =
            graph.detours(from, to).filter(|(l, rate)| !is_relay(*l) && self.is_good(*rate));
        let cure = others.reduce(|best, next| if next.1 > best.1 { next } else { best });
        let detour = self.best.map(|(_, rate)| rate);
        Some(PoorPair { from, to, direct: self.direct, detour, cure })
    }
}

/// Running sums over all pairs and for each node.
struct MeshTally {
    pairs: u64,
    good: u64,
    gain: f64,
    /// The number of measured pairs with an end at the node.
    own: Vec<u64>,
    sites: Vec<RelaySite>,
}

impl MeshTally {
    fn new(nodes: usize) -> Self {
        let site = |node| RelaySite {
            node,
            is_relay: false,
            adds: 0.0,
            helps: 0,
            gives: 0.0,
            carries: 0,
            evidence: 0,
        };
        let sites = (0..nodes).map(site).collect();
        Self { pairs: 0, good: 0, gain: 0.0, own: vec![0; nodes], sites }
    }

    fn add(&mut self, graph: &Graph, pair: &MeasuredPair, is_relay: &impl Fn(usize) -> bool) {
        let now = pair.gain(pair.now());
        let good = pair.is_good(pair.now());
        self.pairs += 1;
        self.good += u64::from(good);
        self.gain += now;
        self.own[pair.ends.0] += 1;
        self.own[pair.ends.1] += 1;
        for (l, rate) in graph.detours(pair.ends.0, pair.ends.1) {
            let site = &mut self.sites[l];
            site.evidence += 1;
            if !is_relay(l) {
                site.adds += (pair.gain(rate) - now).max(0.0);
                site.helps += u64::from(!good && pair.is_good(rate));
            }
        }
        if let Some((l, _)) = pair.best {
            let site = &mut self.sites[l];
            site.gives += now - pair.gain(pair.second.max(pair.direct));
            site.carries += u64::from(good);
        }
    }

    fn advice(mut self, is_relay: &impl Fn(usize) -> bool, poor: Vec<PoorPair>) -> Advice {
        for (site, own) in self.sites.iter_mut().zip(&self.own) {
            let pairs = (self.pairs - own).max(1) as f64;
            site.is_relay = is_relay(site.node);
            site.adds /= pairs;
            site.gives /= pairs;
        }
        let order = |s: &RelaySite| (s.is_relay, s.node);
        self.sites.sort_by(|a, b| {
            let worth = b.worth().total_cmp(&a.worth());
            a.is_relay.cmp(&b.is_relay).then(worth).then(order(a).cmp(&order(b)))
        });
        let gain = self.gain / self.pairs.max(1) as f64;
        Advice { pairs: self.pairs, good: self.good, gain, sites: self.sites, poor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn graph(mbps: &[&[u64]]) -> Graph {
        let rate = |r: &u64| (*r > 0).then(|| Rate::from_bps(r * 1_000_000));
        let rows: Vec<Vec<_>> = mbps.iter().map(|row| row.iter().map(rate).collect()).collect();
        Graph::from_matrix(&rows)
    }

    /// The path between 0 and 1 is slow; 2 is a poor relay, 3 would be a good one.
    fn mesh() -> Graph {
        graph(&[&[0, 10, 12, 40], &[10, 0, 12, 40], &[12, 12, 0, 12], &[40, 40, 12, 0]])
    }

    #[test]
    fn the_member_with_the_best_detour_comes_first_with_its_gain() {
        let advice = advise(&mesh(), |l| l == 2, 8);
        assert_eq!((advice.pairs, advice.good), (12, 2));
        let site = advice.sites[0];
        // Node 3 raises 0→1 and 1→0 from 12 to 40, of six pairs without an end at it.
        assert_eq!((site.node, site.is_relay, site.evidence), (3, false, 6));
        assert!((site.adds - 2.0 * 2.8 / 6.0).abs() < 1e-9, "{site:?}");
        let relay = advice.sites.iter().find(|s| s.node == 2).unwrap();
        // Relay 2 raises the same pairs from 10 to 12.
        assert!((relay.gives - 2.0 * 0.2 / 6.0).abs() < 1e-9, "{relay:?}");
        assert_eq!((relay.carries, relay.adds), (2, 0.0));
    }

    #[test]
    fn pairs_without_a_good_detour_are_listed_with_their_cure() {
        let advice = advise(&mesh(), |_| false, 1);
        let poor = advice.poor[0];
        let cure = Some((3, Rate::from_mbps(40.0)));
        assert_eq!(advice.poor.len(), 1);
        assert_eq!((poor.from, poor.to, poor.detour, poor.cure), (0, 1, None, cure));
        assert_eq!(advice.sites[0].helps, 2);
    }

    #[test]
    fn neighbourhoods_are_sorted_by_mean_worth() {
        let advice = advise(&mesh(), |l| l == 2, 8);
        let tags = [("near", vec![2, 3]), ("far", vec![0, 1]), ("one", vec![3])];
        let tags = tags.map(|(name, nodes)| (name.to_owned(), nodes)).into();
        let found = neighbourhoods(&advice, &tags);
        let names: Vec<_> = found.iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names, ["near", "far"]);
    }

    #[test]
    fn without_measurements_there_is_no_advice() {
        let advice = advise(&Graph::new(3), |_| true, 8);
        assert_eq!((advice.pairs, advice.gain, advice.poor.len()), (0, 0.0, 0));
        assert!(advice.sites.iter().all(|s| s.worth() == 0.0));
    }

    proptest! {
        /// What a node is said to add equals what the mesh gains once it relays, computed anew.
        #[test]
        fn the_predicted_gain_equals_the_gain_once_the_node_relays(
            rates in prop::collection::vec(0u64..50, 36), relays in any::<u8>(), new in 0usize..6
        ) {
            let rows: Vec<&[u64]> = rates.chunks(6).collect();
            let graph = graph(&rows);
            let before = advise(&graph, |l| relays >> l & 1 == 1, 0);
            let after = advise(&graph, |l| relays >> l & 1 == 1 || l == new, 0);
            let site = |a: &Advice| *a.sites.iter().find(|s| s.node == new).unwrap();
            let own = graph.out_degree(new) + graph.in_degree(new);
            let pairs = before.pairs as f64;
            let share = ((pairs - own as f64).max(1.0)) / pairs.max(1.0);
            let gained = after.gain - before.gain;
            prop_assert!((site(&before).adds * share - gained).abs() < 1e-6);
            if relays >> new & 1 == 0 {
                prop_assert!((site(&after).gives * share - gained).abs() < 1e-6);
            }
        }
    }
}
