//! The load-aware assignment against UKAIRO's two strategies, on a small network with max-min fair shares.

use super::meshes::{cells, log_normal, mesh, seeded};
use proptest::prelude::*;
use rand_core::Rng;
use std::collections::BTreeSet;
use thalweg_plan::{
    Graph,
    assignment::{Assigner, Client, RelayExperience, RelayLoad, load_aware},
    ranking::{End, ROBUST_MOST_GAIN, Ranking},
};
use thalweg_units::Rate;

const RELAYS: usize = 40;
const CLIENTS: usize = 20;
const SERVERS: usize = 20;
const SET: usize = 5;

/// Nodes are relays first, then clients, then servers. Each leg has a rate of its own, Mbit/s; a relay's forwarding and
/// each node's access are shared.
struct Network {
    leg: Vec<Vec<f64>>,
    forward: Vec<f64>,
    access: Vec<f64>,
}

/// A flow: its own limit, and the capacities that it shares.
struct Flow {
    limit: f64,
    shared: Vec<usize>,
}

impl Network {
    fn new(random: &mut impl Rng) -> Self {
        let nodes = RELAYS + CLIENTS + SERVERS;
        let quality: Vec<f64> = (0..nodes).map(|_| log_normal(0.4, random)).collect();
        let mut leg = |i: usize, j: usize| 9.0 * quality[i] * quality[j] * log_normal(0.6, random);
        let leg = (0..nodes).map(|i| (0..nodes).map(|j| leg(i, j)).collect()).collect();
        let forward = (0..RELAYS).map(|_| 30.0 * log_normal(0.4, random)).collect();
        Self { leg, forward, access: (0..nodes).map(|_| 60.0 * log_normal(0.3, random)).collect() }
    }

    /// The measured legs among the relays.
    fn graph(&self) -> Graph {
        let cell = |i: usize, j: usize| Some(Rate::from_mbps(self.leg[i][j]));
        let row = |i| (0..RELAYS).map(|j| cell(i, j)).collect();
        Graph::from_matrix(&(0..RELAYS).map(row).collect::<Vec<_>>())
    }

    fn flow(&self, server: usize, relay: Option<usize>, client: usize) -> Flow {
        let mut shared = vec![server, client];
        let limit = match relay {
            None => self.leg[server][client],
            Some(l) => {
                shared.push(self.access.len() + l);
                self.leg[server][l].min(self.leg[l][client])
            }
        };
        Flow { limit, shared }
    }

    /// Max-min fair rates: the next flow to stop growing is the one whose limit, or whose fullest shared capacity,
    /// comes first.
    fn rates(&self, flows: &[Flow]) -> Vec<f64> {
        let mut left: Vec<f64> = self.access.iter().chain(&self.forward).copied().collect();
        let mut rates = vec![None; flows.len()];
        while rates.contains(&None) {
            let mut growing = vec![0.0; left.len()];
            for (flow, _) in flows.iter().zip(&rates).filter(|(_, rate)| rate.is_none()) {
                flow.shared.iter().for_each(|s| growing[*s] += 1.0);
            }
            let most = |flow: &Flow| {
                flow.shared.iter().map(|s| left[*s] / growing[*s]).fold(flow.limit, f64::min)
            };
            let open = (0..flows.len()).filter(|at| rates[*at].is_none());
            let (at, rate) = open
                .map(|at| (at, most(&flows[at])))
                .reduce(|a, b| if b.1 < a.1 { b } else { a })
                .unwrap();
            rates[at] = Some(rate);
            flows[at].shared.iter().for_each(|s| left[*s] -= rate);
        }
        rates.into_iter().flatten().collect()
    }
}

#[derive(Clone, Copy, Debug)]
enum Arm {
    Oblivious,
    Balanced,
    LoadAware,
}

/// A client's record of the relays that it tried: sums of gains, and numbers of tries.
type Memory = [(f64, u32); RELAYS];

fn seen(memory: &Memory) -> Vec<RelayExperience> {
    let tried = memory.iter().enumerate().filter(|(_, (_, tries))| *tries > 0);
    tried
        .map(|(relay, (sum, tries))| RelayExperience {
            relay,
            gain: sum / f64::from(*tries),
            tries: *tries,
        })
        .collect()
}

/// The client takes the best of its paths, each measured beside the present flows.
fn select(
    net: &Network,
    flows: &mut Vec<Flow>,
    (server, client): (usize, usize),
    set: &[usize],
    memory: &mut Memory,
) -> (Option<usize>, f64) {
    let mut found = |relay| {
        flows.push(net.flow(server, relay, client));
        let rate = *net.rates(flows).last().unwrap();
        flows.pop();
        rate
    };
    let direct = found(None);
    let mut best = (None, direct);
    for &l in set {
        let rate = found(Some(l));
        memory[l] = (memory[l].0 + (rate / direct - 1.0).max(0.0), memory[l].1 + 1);
        if rate > best.1 {
            best = (Some(l), rate);
        }
    }
    flows.push(net.flow(server, best.0, client));
    best
}

/// The mean improvement over the idle direct path. Clients come one after the other and download all at once, from one
/// server after the other.
fn improvement(net: &Network, arm: Arm, clients: usize, random: &mut impl Rng) -> f64 {
    let graph = net.graph();
    let ranking = Ranking::oblivious(&graph);
    let assigner = Assigner::new(&graph, &ranking);
    let lists: Vec<Vec<usize>> = (0..clients).map(|_| ranking.balanced(SET, random)).collect();
    let mut memories = vec![[(0.0, 0); RELAYS]; clients];
    let limit = |f: &f64| Some(Rate::from_mbps(*f));
    let idle = |f| RelayLoad { limit: limit(f), ..RelayLoad::default() };
    let mut sum = 0.0;
    for round in 0..SERVERS {
        let (mut flows, mut direct) = (vec![], vec![]);
        let mut loads: Vec<RelayLoad> = net.forward.iter().map(idle).collect();
        for at in 0..clients {
            let (client, server) = (RELAYS + at, RELAYS + CLIENTS + (at + round) % SERVERS);
            let set = match arm {
                Arm::Oblivious => ranking.top(SET),
                Arm::Balanced => lists[at].clone(),
                Arm::LoadAware => {
                    let seen = seen(&memories[at]);
                    assigner.assign(&Client { node: None, seen: &seen }, &loads, SET, random)
                }
            };
            direct.push(net.leg[server][client].min(net.access[server]).min(net.access[client]));
            let chosen = select(net, &mut flows, (server, client), &set, &mut memories[at]);
            if let (Some(l), rate) = chosen {
                loads[l].used = Rate::from_mbps(loads[l].used.as_mbps() + rate);
            }
        }
        let rates = net.rates(&flows);
        sum += rates.iter().zip(&direct).map(|(rate, direct)| rate / direct).sum::<f64>();
    }
    sum / (clients * SERVERS) as f64
}

#[test]
fn it_beats_both_of_the_paper_s_for_any_number_of_clients() {
    let mut random = seeded(53);
    let nets: Vec<Network> = (0..40).map(|_| Network::new(&mut random)).collect();
    let mut mean = |arm, clients: usize| {
        // Few clients make few downloads, so more networks are needed, and these are quick.
        let nets = &nets[..(40 / clients).max(4)];
        let each = nets.iter().map(|net| improvement(net, arm, clients, &mut random));
        each.sum::<f64>() / nets.len() as f64
    };
    for clients in [1_usize, 2, 4, 8, 12, 16, 20] {
        let [oblivious, balanced, ours] =
            [Arm::Oblivious, Arm::Balanced, Arm::LoadAware].map(|arm| mean(arm, clients));
        println!("{clients:2}: oblivious {oblivious:.3}, balanced {balanced:.3}, ours {ours:.3}");
        assert!(ours > oblivious && ours > balanced, "with {clients} clients");
    }
}

fn load() -> impl Strategy<Value = RelayLoad> {
    let rate = || (0..2_000_u64).prop_map(|m| Rate::from_bps(m * 50_000));
    (rate(), prop::option::of(rate()), 0..50_u32).prop_map(|(used, limit, assigned)| RelayLoad {
        used,
        limit,
        assigned,
    })
}

proptest! {
    #[test]
    fn assigned_relays_are_distinct_listed_and_not_the_client(
        m in cells(12),
        loads in prop::collection::vec(load(), 0..14),
        odd in prop::sample::select(vec![0.0, 1.0, f64::NAN, f64::INFINITY, -1.0]),
        (seed, wanted, client) in (any::<u64>(), 0_usize..15, 0_usize..14),
    ) {
        let mut random = seeded(seed);
        let g = Graph::from_matrix(&m);
        let ranking = Ranking::oblivious(&g);
        let listed = ranking.scores().iter().filter(|s| s.relay % 3 > 0).copied().collect();
        let ranking = Ranking::from_scores(listed);
        let all = ranking.scores().len();
        let assigner = Assigner::new(&g, &ranking);
        let seen = [RelayExperience { relay: 1, gain: odd, tries: 3 }, RelayExperience { relay: 99, gain: 1.0, tries: 1 }];
        for (node, seen) in [
            (None, &[][..]),
            (Some((client, End::Source)), &[]),
            (Some((client, End::Sink)), &seen),
        ] {
            let set = assigner.assign(&Client { node, seen }, &loads, wanted, &mut random);
            let own = node.is_some_and(|(c, _)| ranking.scores().iter().any(|s| s.relay == c));
            prop_assert_eq!(set.len(), wanted.min(all - usize::from(own)));
            prop_assert_eq!(set.iter().collect::<BTreeSet<_>>().len(), set.len());
            prop_assert!(set.iter().all(|l| l % 3 > 0 && *l < m.len()));
            prop_assert!(node.is_none_or(|(c, _)| !set.contains(&c)));
        }
    }
}

#[test]
fn while_relays_are_idle_the_best_of_the_ranking_are_given() {
    let mut random = seeded(59);
    let g = mesh(40, &mut random);
    let ranking = Ranking::oblivious(&g);
    let first: BTreeSet<usize> = ranking.top(12).into_iter().collect();
    for _ in 0..50 {
        let set = load_aware(&g, &ranking, None, &[], 5, &mut random);
        assert!(set.iter().all(|l| first.contains(l)), "{set:?} of {first:?}");
    }
}

#[test]
fn a_full_relay_is_offered_less_and_a_free_one_again() {
    let mut random = seeded(61);
    let g = mesh(40, &mut random);
    let ranking = Ranking::oblivious(&g);
    let best = ranking.top(1)[0];
    let mut loads = vec![RelayLoad::default(); 40];
    let mut given = |loads: &[RelayLoad]| {
        let sets = (0..100).map(|_| load_aware(&g, &ranking, None, loads, 5, &mut random));
        sets.filter(|set| set.contains(&best)).count()
    };
    assert_eq!(given(&loads), 100);
    let limit = Rate::from_mbps(20.0);
    loads[best] = RelayLoad { used: limit, limit: Some(limit), assigned: 9 };
    assert_eq!(given(&loads), 0, "it is full");
    // The clients that were given it have not begun, and none has reported yet.
    loads[best] = RelayLoad { used: Rate::ZERO, limit: Some(limit), assigned: 60 };
    assert_eq!(given(&loads), 0, "it soon will be full");
    loads[best] = RelayLoad { limit: Some(Rate::from_mbps(500.0)), ..RelayLoad::default() };
    assert_eq!(given(&loads), 100);
}

#[test]
fn the_client_s_own_experience_counts() {
    let mut random = seeded(67);
    let g = mesh(40, &mut random);
    let ranking = Ranking::oblivious(&g);
    let assigner = Assigner::new(&g, &ranking);
    let last = ranking.scores().last().unwrap().relay;
    let seen = [RelayExperience { relay: last, gain: 5.0, tries: 20 }];
    let set = assigner.assign(&Client { node: None, seen: &seen }, &[], 5, &mut random);
    assert_eq!(set[0], last);
    // A node's own pairs count: the relay that is best for it is among those that it gets.
    let served = (0..40).filter(|client| {
        let node = Some((*client, End::Sink));
        let set = assigner.assign(&Client { node, seen: &[] }, &[], 8, &mut random);
        set.contains(&Ranking::specific_as(&g, *client, End::Sink).top(1)[0])
    });
    let served = served.count();
    assert!(served >= 34, "{served} of 40 get what is best for them");
}

#[test]
fn a_liar_gains_nothing_with_a_robust_ranking() {
    let mut random = seeded(71);
    let mut g = mesh(40, &mut random);
    let liar = Ranking::oblivious(&g).scores().last().unwrap().relay;
    for other in (0..40).filter(|other| *other != liar) {
        g.set(liar, other, Some(Rate::from_mbps(90_000.0)));
        g.set(other, liar, Some(Rate::from_mbps(90_000.0)));
    }
    let alone = |i, j| (i == liar || j == liar).then_some(liar);
    let robust = Ranking::robust(&g, ROBUST_MOST_GAIN, alone);
    let clients = (0..40).filter(|c| *c != liar).map(|c| Some((c, End::Sink)));
    for node in clients.chain([None]) {
        let give = |ranking: &Ranking, random: &mut _| {
            Assigner::new(&g, ranking).assign(&Client { node, seen: &[] }, &[], 5, random)
        };
        assert!(!give(&robust, &mut random).contains(&liar), "{node:?}");
        assert!(give(&Ranking::oblivious(&g), &mut random).contains(&liar), "no test without");
    }
}

#[test]
fn many_clients_of_a_large_mesh_are_spread() {
    let mut random = seeded(73);
    let g = mesh(200, &mut random);
    let ranking = Ranking::oblivious(&g);
    let assigner = Assigner::new(&g, &ranking);
    let limit = Some(Rate::from_mbps(50.0));
    let mut loads = vec![RelayLoad { limit, ..RelayLoad::default() }; 200];
    for _ in 0..400 {
        for l in assigner.assign(&Client::default(), &loads, 5, &mut random) {
            loads[l].assigned += 1;
        }
    }
    let used = loads.iter().filter(|load| load.assigned > 0).count();
    let most = loads.iter().map(|load| load.assigned).max().unwrap();
    assert!(used >= 80 && most <= 60, "{used} relays, one for {most} clients");
}
