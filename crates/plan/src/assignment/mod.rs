//! The load-aware assignment: which relays each client is offered when many clients share them.
//!
//! UKAIRO §4.2 has two strategies: one collapses under load, the other gives away gain. This one considers what each
//! relay still has to give. A relay counts as what it can add with the room that is *left* on it: a flow that finds
//! less room than the detour's rate gains less, and a flow whose room is all taken from others gains nothing that they
//! do not lose. While relays are idle, this is UKAIRO's ranking plus what is known of the relays' limits. As they fill,
//! clients are sent on to the next best relays.
//!
//! Tried and not better in simulation: sets of relays that are good for different pairs (greedy cover of a sample of
//! the measured pairs). What a relay is good at among the measured nodes says little about clients outside them.

mod gain_curves;
mod load;

pub use load::RelayLoad;

use crate::{
    Graph, draw,
    graph::gain,
    ranking::{End, ROBUST_MOST_GAIN, Ranking},
};
use gain_curves::GainCurves;
use load::Room;
use rand_core::Rng;
use std::collections::BTreeSet;
use thalweg_units::Rate;

/// The size of each part of the relays considered for a client: the first ones of the ranking, relays with a measured
/// leg to or from the client, and relays drawn from the better half. If there are no more relays than this, all are
/// considered.
const POOL: usize = 64;

/// The weight of the ranking's score; each of a client's own pairs and downloads weighs 1.
const WEIGHT_OF_RANKING: f64 = 8.0;

/// What a relay adds is multiplied by a random factor from 1 to 1 + this, so that oracles that do not know of each
/// other's clients spread them over relays that are nearly as good.
const JITTER: f64 = 0.1;

/// A client that asks for relays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Client<'a> {
    /// Its node in the graph, and its end of the pairs; `None` for a client outside the graph, for which the ranking
    /// counts.
    pub node: Option<(usize, End)>,
    /// Its own experience with relays, at most one entry each.
    pub seen: &'a [RelayExperience],
}

/// A client's experience with one relay in its own downloads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RelayExperience {
    pub relay: usize,
    /// The mean of `d_l(i,j)` over the downloads that tried it (UKAIRO Eq. 1), from 0 up;
    /// counted up to [`ROBUST_MOST_GAIN`].
    pub gain: f64,
    /// The number of those downloads.
    pub tries: u32,
}

/// The relays for a client: `m` of them, the most promising first; fewer if there are no more.
///
/// `loads[l]` is the load of relay l; missing ones count as idle. Relays that are not in the ranking are not offered,
/// and measurements of a relay count for no more than the ranking believes of them: with [`Ranking::robust`] liars gain
/// nothing here.
///
/// A client in the graph is the source of its pairs, as in UKAIRO Eq. (4); `None` is a client outside it. This builds
/// an [`Assigner`], which also takes a client at the other end and its own experience; keep one for many clients.
pub fn load_aware(
    graph: &Graph,
    ranking: &Ranking,
    client: Option<usize>,
    loads: &[RelayLoad],
    m: usize,
    random: &mut (impl Rng + ?Sized),
) -> Vec<usize> {
    let client = Client { node: client.map(|node| (node, End::Source)), seen: &[] };
    Assigner::new(graph, ranking).assign(&client, loads, m, random)
}

/// Assigns relays to clients on the basis of one graph and its ranking.
#[derive(Clone, Debug)]
pub struct Assigner<'a> {
    graph: &'a Graph,
    ranking: &'a Ranking,
    kept: GainCurves,
    nodes: Vec<RelayNode>,
}

/// A node as a relay.
#[derive(Clone, Copy, Debug)]
struct RelayNode {
    /// Its score; `None` if the ranking does not list it.
    score: Option<f64>,
    /// The most that it can relay if it does not report a limit, Mbit/s.
    fastest: f64,
    /// The mean rate of a flow by it where it gains, Mbit/s.
    usual: f64,
    /// Its score as a fraction of what its measurements say, 0 to 1.
    belief: f64,
}

impl<'a> Assigner<'a> {
    /// Samples up to 1,024 measured pairs. O(legs + 1,024 · d) for d legs at a node.
    pub fn new(graph: &'a Graph, ranking: &'a Ranking) -> Self {
        let kept = GainCurves::of(graph);
        let mut scores = vec![None; graph.nodes()];
        for s in ranking.scores().iter().filter(|s| s.relay < graph.nodes()) {
            scores[s.relay] = Some(s.score);
        }
        let node = |(l, score): (usize, Option<f64>)| {
            let fastest = load::fastest(graph, l);
            let belief = kept.belief(l, score.unwrap_or(0.0));
            RelayNode { score, fastest, usual: kept.usual(l, fastest), belief }
        };
        let nodes = scores.into_iter().enumerate().map(node).collect();
        Self { graph, ranking, kept, nodes }
    }

    /// The relays for a client, as [`load_aware`].
    ///
    /// O(192 relays · d) for d legs at the client, O(192) for one outside the graph.
    pub fn assign(
        &self,
        client: &Client<'_>,
        loads: &[RelayLoad],
        m: usize,
        random: &mut (impl Rng + ?Sized),
    ) -> Vec<usize> {
        let mut rated: Vec<(f64, usize)> = Vec::new();
        for l in self.pool(client, random) {
            let load = loads.get(l).copied().unwrap_or_default();
            let room = self.room(l, load, m);
            rated.push((self.adds(client, l, room) * (1.0 + JITTER * draw::unit(random)), l));
        }
        // Ties, such as relays that add nothing, are in random order.
        let all = rated.len();
        let mut rated = draw::distinct(rated, all, random);
        rated.sort_by(|a, b| b.0.total_cmp(&a.0));
        rated.into_iter().take(m).map(|(_, l)| l).collect()
    }

    /// The relays that are considered for a client.
    fn pool(&self, client: &Client<'_>, random: &mut (impl Rng + ?Sized)) -> BTreeSet<usize> {
        let scores = self.ranking.scores();
        let mut pool: BTreeSet<usize> = self.ranking.top(POOL).into_iter().collect();
        if scores.len() > POOL {
            let half = scores.len().div_ceil(2);
            pool.extend((0..POOL).map(|_| scores[draw::below(half, random)].relay));
            if let Some((client, end)) = client.node {
                let near = match end {
                    End::Source => self.graph.outs(client).map(|(l, _)| l).collect(),
                    End::Sink => self.graph.ins(client).map(|(l, _)| l).collect(),
                };
                pool.extend(draw::distinct(near, POOL, random));
            }
        }
        pool.extend(client.seen.iter().map(|seen| seen.relay));
        pool.retain(|l| self.nodes.get(*l).is_some_and(|node| node.score.is_some()));
        if let Some((client, _)) = client.node {
            pool.remove(&client);
        }
        pool
    }

    fn room(&self, l: usize, load: RelayLoad, m: usize) -> f64 {
        Room::of(load, self.nodes[l].fastest, self.nodes[l].usual, m).mbps()
    }

    /// The expected gain by relay `l` with this room, Mbit/s: the weighted mean of the ranking's score and of the gains
    /// in the client's own pairs and downloads.
    fn adds(&self, client: &Client<'_>, l: usize, room: f64) -> f64 {
        let RelayNode { score, belief, .. } = self.nodes[l];
        let general = score.unwrap_or(0.0) * self.kept.part(l, room);
        let of_pairs = |(node, end)| self.own(node, end, l, room);
        let (own, pairs) = client.node.map_or((0.0, 0.0), of_pairs);
        let seen = client.seen.iter().find(|seen| seen.relay == l);
        let (seen, tries) = seen.map_or((0.0, 0.0), |s| (s.gain, f64::from(s.tries)));
        let seen = tries * seen.clamp(0.0, ROBUST_MOST_GAIN) * self.kept.part(l, room);
        let sum = belief * own + seen + WEIGHT_OF_RANKING * general;
        sum / (pairs + tries + WEIGHT_OF_RANKING)
    }

    /// The sum of the gains by relay `l` over the client's own pairs, and the number of those pairs.
    fn own(&self, client: usize, end: End, l: usize, room: f64) -> (f64, f64) {
        let mut sum = (0.0, 0.0);
        let room = Rate::from_mbps(room);
        let mut add = |leg: Rate, direct, other: Rate| {
            sum.0 += gain(direct, leg.min(other).min(room)).min(ROBUST_MOST_GAIN);
            sum.1 += 1.0;
        };
        let leg = match end {
            End::Source => self.graph.rate(client, l),
            End::Sink => self.graph.rate(l, client),
        };
        match (leg, end) {
            (None, _) => {}
            (Some(leg), End::Source) => {
                self.graph.shared_outs(client, l).for_each(|(_, d, other)| add(leg, d, other));
            }
            (Some(leg), End::Sink) => {
                self.graph.shared_ins(client, l).for_each(|(_, d, other)| add(leg, d, other));
            }
        }
        sum
    }
}
