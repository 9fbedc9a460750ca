//! Tests against all trees of small graphs, and against the unbounded widest-path tree.

use super::*;
use crate::{
    Graph, draw,
    tree::{
        Host, Role, Storage,
        depth::Shape,
        table::{HOSTS, TABLE, table_1},
    },
};
use proptest::prelude::*;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use thalweg_units::ByteSize;

/// The best of all trees, over every choice of parents.
fn best(overlay: &Overlay<'_>, model: &ChainLoss) -> (TreeScore, Tree) {
    let nodes = overlay.nodes();
    let mut parent = vec![0; nodes];
    let mut best: Option<(TreeScore, Tree)> = None;
    for code in 0..(nodes as u64).pow(nodes as u32 - 1) {
        let mut rest = code;
        for at in parent.iter_mut().skip(1) {
            *at = (rest % nodes as u64) as usize;
            rest /= nodes as u64;
        }
        // A node that is its own parent is not in the tree.
        let own = |(node, parent): (usize, &usize)| {
            Some(*parent).filter(|parent| *parent != node && overlay.leg(*parent, node) > 0.0)
        };
        let parents: Vec<Option<usize>> = parent.iter().enumerate().map(own).collect();
        let tree = Tree::from_parents(0, parents);
        let score = TreeScore::of(overlay, &tree, model);
        if best.as_ref().is_none_or(|best| score.beats(&best.0)) {
            best = Some((score, tree));
        }
    }
    best.unwrap()
}

/// A graph like wide-area ones: legs from 5 to 100, access from 10 to 150, a fifth of the legs unknown.
fn world(nodes: usize, seed: u64) -> (Graph, Vec<Host>) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut within = |low: f64, high: f64| {
        let at = draw::unit(&mut random);
        Rate::from_mbps((low * (high / low).powf(at)).round())
    };
    let mut graph = Graph::new(nodes);
    for i in 0..nodes {
        for j in 0..nodes {
            let known = within(1.0, 100.0).as_mbps() > 2.5 || i == 0;
            let rate = within(5.0, 100.0);
            graph.set(i, j, Some(rate).filter(|_| known));
        }
    }
    let host = |node: usize| {
        let (egress, ingress) = (within(10.0, 150.0), within(20.0, 200.0));
        let role = if node % 4 == 3 { Role::Relay } else { Role::Receiver };
        let host = Host { role, ..Host::RECEIVER.with_access(Some(egress), Some(ingress)) };
        host.leaf_below(Rate::from_mbps(15.0))
    };
    let hosts = (0..nodes).map(host).collect();
    (graph, hosts)
}

fn slowest(overlay: &Overlay<'_>, rates: &[Rate]) -> f64 {
    overlay.receivers().map(|node| rates[node].as_mbps()).fold(f64::INFINITY, f64::min)
}

fn sum(overlay: &Overlay<'_>, rates: &[Rate]) -> f64 {
    overlay.receivers().map(|node| rates[node].as_mbps()).sum()
}

/// All of these seeds get the best of all trees; a change may cost one of them a little.
#[test]
fn small_graphs_get_the_best_tree_or_nearly() {
    let (mut worst, mut exact, mut sums, cases) = (1.0_f64, 0, 0.0, 60);
    for seed in 150..150 + cases {
        let (graph, hosts) = world(5, seed);
        let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
        let planned = overlay.bounded(&ChainLoss::NONE, EFFORT / 10);
        let (score, tree) = best(&overlay, &ChainLoss::NONE);
        let own = TreeScore::of(&overlay, &planned.tree, &ChainLoss::NONE);
        assert!(!own.beats(&score), "seed {seed}: better than the best of all");
        let rates = overlay.rates(&tree, &ChainLoss::NONE);
        exact += u32::from(!score.beats(&own));
        worst = worst.min(slowest(&overlay, &planned.rates) / slowest(&overlay, &rates));
        sums += sum(&overlay, &planned.rates) / sum(&overlay, &rates) / cases as f64;
    }
    println!(
        "best tree found in {exact} of {cases}; slowest at least {worst:.3} of its; sum {sums:.3}"
    );
    assert!(worst > 0.95, "the slowest has {worst} of what it could");
    assert!(exact + 1 >= cases as u32, "{exact} of {cases}");
}

/// The widest-path tree overloads egress; a tree that considers it gives the slowest receiver more.
#[test]
fn the_slowest_receiver_is_faster_than_in_the_unbounded_widest_tree() {
    let (mut gains, cases) = (Vec::new(), 12);
    for seed in 100..100 + cases {
        let (graph, hosts) = world(24, seed);
        let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
        let planned = overlay.bounded(&ChainLoss::NONE, 400_000);
        let widest = overlay.rates(&overlay.widest().tree, &ChainLoss::NONE);
        let gain = slowest(&overlay, &planned.rates) / slowest(&overlay, &widest);
        assert!(gain >= 0.99, "seed {seed}: {gain}");
        for node in overlay.receivers() {
            assert!(planned.rates[node] <= planned.ceilings[node], "seed {seed}, node {node}");
        }
        gains.push(gain);
    }
    gains.sort_by(f64::total_cmp);
    println!("slowest receiver against the widest tree's: {gains:.2?}");
    assert!(gains[gains.len() / 2] > 1.2, "{gains:?}");
}

/// Table 1 rooted at UCLA; each host's access is the rate between two hosts of its own site. Berkeley, next to the
/// source, gets what its leg gives, while the slowest receiver is as fast as in the widest-path tree.
#[test]
fn a_near_host_is_not_hung_under_a_far_one() {
    let graph = table_1(1.0);
    let site = |host: usize| TABLE.get(host).map_or(100.0, |row| row[host]);
    let access = |host| Host::RECEIVER.with_access(Some(Rate::from_mbps(site(host))), None);
    let mut hosts: Vec<Host> = (0..HOSTS.len()).map(access).collect();
    hosts[8] = Host::ABSENT;
    let overlay = Overlay { graph: &graph, source: 1, hosts: &hosts };
    let planned = overlay.bounded(&ChainLoss::NONE, EFFORT / 10);
    let widest = overlay.rates(&overlay.widest().tree, &ChainLoss::NONE);
    let (own, other) = (slowest(&overlay, &planned.rates), slowest(&overlay, &widest));
    assert!(own >= 0.99 * other, "{own} {other}");
    let near = HOSTS.iter().position(|name| *name == "Berkeley").unwrap();
    assert_eq!(planned.rates[near], Rate::from_mbps(30.3), "{:?}", planned.rates);
}

/// A source that can serve one receiver at full rate must not serve three.
#[test]
fn a_thin_source_feeds_one_receiver_that_feeds_the_others() {
    let mbps = |x: f64| Some(Rate::from_mbps(x));
    let graph = Graph::from_matrix(&vec![vec![mbps(100.0); 5]; 5]);
    let thin = Host::RECEIVER.with_access(mbps(100.0), None);
    let mut hosts = [thin; 5];
    hosts[2] = Host::RECEIVER.with_access(mbps(400.0), None);
    let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
    let planned = overlay.bounded(&ChainLoss::NONE, EFFORT / 10);
    assert_eq!(planned.rates[1..], vec![Rate::from_mbps(100.0); 4]);
    assert_eq!((planned.tree.parent(2), planned.tree.depth(1)), (Some(0), Some(2)));
}

/// With rings that lose a tenth a hop, the planner's trees are less deep than where nodes store.
#[test]
fn depth_costs_where_rings_lose() {
    let mbps = |x: f64| Some(Rate::from_mbps(x));
    let graph = Graph::from_matrix(&vec![vec![mbps(50.0); 9]; 9]);
    let ring = ByteSize::from_bytes(1 << 20);
    let model =
        ChainLoss { shape: Shape::Exponential, dispersion: ChainLoss::dispersion(0.1, ring) };
    let plan = |keeps: Storage, model: &ChainLoss| {
        // The source has egress for three at full rate, every other host for one, or for two slow ones.
        let host = Host { keeps, ..Host::RECEIVER.with_access(mbps(50.0), None) };
        let mut hosts = [host; 9];
        hosts[0] = Host::RECEIVER.with_access(mbps(150.0), None);
        let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
        let planned = overlay.bounded(model, EFFORT / 10);
        let deepest = (1..9).filter_map(|node| planned.tree.depth(node)).max();
        (deepest.unwrap(), slowest(&overlay, &planned.rates))
    };
    let (stored, rate) = plan(Storage::Store, &model);
    assert_eq!((stored, rate), (3, 50.0), "three chains of three, three and two");
    let (deep, rate) = plan(Storage::Ring(ring), &model);
    assert!(deep <= 3 && rate > 40.0, "{deep} {rate}");
}

#[test]
fn a_relay_is_used_where_it_gives_more_than_it_takes() {
    let mbps = |x: f64| Some(Rate::from_mbps(x));
    let graph = Graph::from_matrix(&vec![vec![mbps(100.0); 4]; 4]);
    let leaf = Host { forwards: false, ..Host::RECEIVER };
    let relay = Host::ring(ByteSize::from_bytes(1 << 20)).with_access(mbps(200.0), None);
    let source = Host::RECEIVER.with_access(mbps(100.0), None);
    let hosts = [source, leaf, leaf, relay];
    let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
    let planned = overlay.bounded(&ChainLoss::NONE, EFFORT / 10);
    assert_eq!([1, 2, 3].map(|node| planned.tree.parent(node)), [Some(3), Some(3), Some(0)]);
    assert_eq!(planned.rates[1..3], [Rate::from_mbps(100.0); 2]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// For any graph: only existing legs are used, leaves stay leaves, and every reachable receiver is reached.
    #[test]
    fn trees_keep_to_the_overlay(seed: u64, nodes in 2_usize..14) {
        let (graph, hosts) = world(nodes, seed);
        let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
        let planned = overlay.bounded(&ChainLoss::NONE, 200_000);
        for node in 1..nodes {
            if let Some(parent) = planned.tree.parent(node) {
                prop_assert!(overlay.leg(parent, node) > 0.0);
            }
            let reachable = planned.ceilings[node] > Rate::ZERO;
            prop_assert!(!overlay.receives(node) || planned.tree.has(node) == reachable);
        }
    }
}
