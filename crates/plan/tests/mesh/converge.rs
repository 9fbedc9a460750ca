//! Algorithm 2 on a random matrix: the set converges to the client-specific one (UKAIRO §4.1.2).

use super::meshes::{log_normal, seeded};
use rand_core::Rng;
use thalweg_plan::{
    Graph,
    adaptive::{AdaptiveRelays, Draw},
    ranking::{MOST_GAIN, Ranking},
};
use thalweg_units::Rate;

const RELAYS: usize = 50;
const NODES: usize = 100;
const SET: usize = 5;
const CLIENTS: usize = 20;

/// Clients and destinations around relays. The client's leg to a relay matters most, as where each client is near to
/// other relays than the next client.
fn random_mesh(random: &mut impl Rng) -> Graph {
    let mut g = Graph::new(NODES);
    for (i, j) in (0..NODES).flat_map(|i| (0..NODES).map(move |j| (i, j))) {
        let mbps = match (i < RELAYS, j < RELAYS) {
            (false, true) => 15.0 * log_normal(0.8, random),
            (true, false) => 30.0 * log_normal(0.3, random),
            _ => 10.0 * log_normal(0.3, random),
        };
        g.set(i, j, Some(Rate::from_mbps(mbps)));
    }
    g
}

/// Client `i`'s gain by `l` for its path to `j`.
fn gain(g: &Graph, i: usize, l: usize, j: usize) -> f64 {
    g.detour_gain(i, l, j).unwrap().min(MOST_GAIN)
}

/// The mean over all destinations of the best gain by a relay of the set.
fn promise(g: &Graph, client: usize, set: &[usize]) -> f64 {
    let best = |j| set.iter().map(|l| gain(g, client, *l, j)).fold(0.0, f64::max);
    (RELAYS..NODES).filter(|j| *j != client).map(best).sum::<f64>() / (NODES - RELAYS - 1) as f64
}

/// The relays of a ranking, without the other nodes.
fn first(ranking: &Ranking) -> Vec<usize> {
    ranking.top(NODES).into_iter().filter(|l| *l < RELAYS).take(SET).collect()
}

/// The client's set after this many downloads from random destinations.
fn learnt(
    g: &Graph,
    oblivious: &Ranking,
    client: usize,
    downloads: u32,
    draw: Draw,
    random: &mut impl Rng,
) -> Vec<usize> {
    let relays = oblivious.scores().iter().filter(|s| s.relay < RELAYS);
    let mut adaptive = AdaptiveRelays::default();
    adaptive.follow(&relays.map(|s| (s.relay.to_string(), s.score)).collect::<Vec<_>>());
    for _ in 0..downloads {
        let j = RELAYS + (random.next_u32() as usize) % (NODES - RELAYS);
        let tried = adaptive.candidates(SET, draw, random);
        let seen = tried.iter().map(|l| (l.clone(), gain(g, client, l.parse().unwrap(), j)));
        if j != client {
            adaptive.learn(&seen.collect::<Vec<_>>(), random);
        }
    }
    adaptive.known().iter().take(SET).map(|k| k.relay.parse().unwrap()).collect()
}

/// Means over the clients: what their sets promise as a fraction of what the client-specific ones promise, and the part
/// of the set that is in the client-specific one.
fn judge(g: &Graph, set: impl Fn(usize) -> Vec<usize>) -> (f64, f64) {
    let judged = (RELAYS..RELAYS + CLIENTS).map(|client| {
        let (own, set) = (first(&Ranking::specific(g, client)), set(client));
        let shared = set.iter().filter(|l| own.contains(l)).count();
        (promise(g, client, &set) / promise(g, client, &own), shared as f64 / SET as f64)
    });
    let (promises, shared) = judged.fold((0.0, 0.0), |sum, j| (sum.0 + j.0, sum.1 + j.1));
    (promises / CLIENTS as f64, shared / CLIENTS as f64)
}

#[test]
fn with_both_draws_the_set_converges_to_the_client_specific_one() {
    let mut random = seeded(41);
    let g = random_mesh(&mut random);
    let oblivious = Ranking::oblivious(&g);
    let at_first = judge(&g, |_| first(&oblivious));
    assert!(at_first.0 < 0.75 && at_first.1 < 0.25, "{at_first:?}: nothing is left to learn");
    // A score is half the last gain, so the sets never come to rest: they stay at about 9/10 of the promise.
    for (draw, promised, shared) in [(Draw::Proportional, 0.85, 0.35), (Draw::Top, 0.8, 0.25)] {
        let sets: Vec<Vec<usize>> = (RELAYS..RELAYS + CLIENTS)
            .map(|client| learnt(&g, &oblivious, client, 100, draw, &mut random))
            .collect();
        let now = judge(&g, |client| sets[client - RELAYS].clone());
        println!("{draw:?}: {at_first:?} became {now:?}");
        assert!(now.0 >= promised && now.1 >= shared, "{draw:?}: {at_first:?} became {now:?}");
    }
}
