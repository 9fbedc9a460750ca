//! Tests against a closed form, against a program with a flow for each receiver, and against trees.

use super::*;
use crate::{
    Graph, draw,
    tree::{EFFORT, Host, depth::ChainLoss},
};
use good_lp::{
    Expression, ProblemVariables, Solution, SolverModel, solvers::microlp::microlp, variable,
};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

fn mbps(x: f64) -> Option<Rate> {
    Some(Rate::from_mbps(x))
}

fn full(nodes: usize, x: f64) -> Graph {
    Graph::from_matrix(&vec![vec![mbps(x); nodes]; nodes])
}

fn world(nodes: usize, seed: u64) -> (Graph, Vec<Host>) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut within = |low: f64, high: f64| {
        let at = draw::unit(&mut random);
        mbps((low * (high / low).powf(at)).round())
    };
    let mut graph = Graph::new(nodes);
    for i in 0..nodes {
        for j in 0..nodes {
            graph.set(i, j, within(5.0, 100.0));
        }
    }
    let hosts = (0..nodes).map(|_| {
        let (egress, ingress) = (within(10.0, 150.0), within(20.0, 200.0));
        Host::RECEIVER.with_access(egress, ingress)
    });
    (graph, hosts.collect())
}

/// Li, Chou, Zhang, *Mutualcast* (2005): if egress is the only limit, all n receivers have min(Cs, (Cs + ΣCi) / n) at
/// once.
#[test]
fn with_limited_egress_only_it_is_mutualcast_s_rate() {
    for egress in [[30.0, 10.0, 20.0, 60.0], [100.0, 10.0, 5.0, 0.0], [90.0, 10.0, 80.0, 90.0]] {
        let graph = full(4, 1000.0);
        let hosts = egress.map(|egress| Host::RECEIVER.with_access(mbps(egress), None));
        let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
        let several = overlay.several(usize::MAX, None).unwrap();
        let expected = egress[0].min(egress.iter().sum::<f64>() / 3.0);
        for node in 1..4 {
            let rate = several.rates[node].as_mbps();
            assert!((rate / expected - 1.0).abs() < 1e-3, "{egress:?}: {rate}, not {expected}");
            assert_eq!(several.alone[node].as_mbps(), egress[0], "the source's own");
        }
    }
}

/// The largest rate for all receivers, with a flow for each instead of cuts.
fn level_by_flows(overlay: &Overlay<'_>) -> f64 {
    let legs = kept_legs(overlay, usize::MAX, None);
    let mut variables = ProblemVariables::new();
    let mut per_leg = |most: bool| -> Vec<_> {
        let within = |leg: &UsableLeg| if most { leg.rate / 1e6 } else { f64::INFINITY };
        legs.iter().map(|leg| variables.add(variable().min(0.0).max(within(leg)))).collect()
    };
    let on = per_leg(true);
    let flows: Vec<(usize, Vec<_>)> =
        overlay.receivers().map(|receiver| (receiver, per_leg(false))).collect();
    let level = variables.add(variable().min(0.0));
    let mut model = variables.maximise(level).using(microlp);
    let sum = |of: &[good_lp::Variable], which: &dyn Fn(&UsableLeg) -> bool| -> Expression {
        legs.iter().zip(of).filter(|(leg, _)| which(leg)).map(|(_, x)| *x).sum()
    };
    for node in 0..overlay.nodes() {
        model.add_constraint(sum(&on, &|leg| leg.from == node).leq(overlay.egress(node) / 1e6));
        model.add_constraint(sum(&on, &|leg| leg.to == node).leq(overlay.ingress(node) / 1e6));
        for (receiver, flow) in &flows {
            let gain = sum(flow, &|leg| leg.to == node) - sum(flow, &|leg| leg.from == node);
            if node == *receiver {
                model.add_constraint((gain - level).geq(0.0));
            } else if node != overlay.source {
                model.add_constraint(gain.geq(0.0));
            }
        }
    }
    for (_, flow) in &flows {
        for (own, leg) in flow.iter().zip(&on) {
            model.add_constraint((*leg - *own).geq(0.0));
        }
    }
    model.solve().unwrap().value(level)
}

#[test]
fn the_slowest_rate_equals_that_of_a_program_without_cuts() {
    for seed in 0..12 {
        let (graph, hosts) = world(5, seed);
        let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
        let several = overlay.several(usize::MAX, None).unwrap();
        let slowest = several.rates[1..].iter().min().unwrap().as_mbps();
        let expected = level_by_flows(&overlay);
        assert!((slowest / expected - 1.0).abs() < 1e-3, "seed {seed}: {slowest}, not {expected}");
    }
}

/// Every answer keeps the capacities, gives each receiver its flow, and sends nothing twice.
#[test]
fn rates_are_possible_and_no_receiver_can_have_more() {
    for seed in 0..10 {
        let (graph, hosts) = world(7, seed);
        let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
        let SeveralParents { rates, alone, parents } = overlay.several(usize::MAX, None).unwrap();
        let mut arcs = Vec::new();
        let mut egress = [0.0; 7];
        for (to, shares) in (0_u32..).zip(&parents) {
            let sum: f64 = shares.iter().map(|share| share.rate.as_mbps()).sum();
            let rate = rates[to as usize].as_mbps();
            assert!(
                (sum - rate).abs() < 2e-3 * rate.max(1.0),
                "seed {seed}, {to}: {sum} for {rate}"
            );
            assert!(shares.windows(2).all(|two| two[0].rate >= two[1].rate));
            for share in shares {
                egress[share.parent] += share.rate.as_mbps();
                arcs.push((share.parent as u32, to, share.rate.as_bps()));
            }
        }
        for (node, egress) in egress.into_iter().enumerate() {
            assert!(egress <= overlay.egress(node) / 1e6 * 1.001, "seed {seed}, {node}");
        }
        for node in 1..7 {
            let flow = MaxFlow::new(7, &arcs).run(0, node) as f64 / 1e6;
            let rate = rates[node as usize].as_mbps();
            assert!(flow >= 0.998 * rate, "seed {seed}, {node}: {flow} < {rate}");
            assert!(rates[node as usize] <= alone[node as usize], "seed {seed}, {node}");
        }
    }
}

/// A tree with one parent each is a special case: no tree's slowest receiver is faster.
#[test]
fn no_tree_s_slowest_receiver_is_faster() {
    let (mut gains, cases) = (Vec::new(), 8);
    for seed in 50..50 + cases {
        let (graph, hosts) = world(8, seed);
        let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
        let several = overlay.several(usize::MAX, None).unwrap();
        let tree = overlay.bounded(&ChainLoss::NONE, EFFORT / 20);
        let least = |rates: &[Rate]| rates[1..].iter().min().unwrap().as_mbps();
        let gain = least(&several.rates) / least(&tree.rates);
        assert!(gain >= 0.999, "seed {seed}: {gain}");
        gains.push(gain);
        let few = least(&overlay.several(1, Some(&tree.tree)).unwrap().rates);
        assert!(few >= 0.999 * least(&tree.rates), "seed {seed}: {few} with the tree's own legs");
        assert!(few <= 1.001 * least(&several.rates), "seed {seed}: {few} with fewer legs");
    }
    gains.sort_by(f64::total_cmp);
    println!("slowest receiver with several parents against the tree's: {gains:.2?}");
    assert!(gains.iter().filter(|gain| **gain > 1.1).count() >= 2, "{gains:?}");
}

/// Max-min fair, not merely the largest minimum: a receiver that is not in the slow one's way gets all it can.
#[test]
fn a_slow_receiver_does_not_hold_others_back() {
    let mut graph = full(4, 100.0);
    for from in 0..4 {
        graph.set(from, 3, mbps(1.0));
    }
    let host = Host::RECEIVER.with_access(mbps(100.0), mbps(80.0));
    let mut hosts = [host; 4];
    hosts[3] = Host::RECEIVER.with_access(mbps(0.0), mbps(2.0));
    let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
    let rates = overlay.several(usize::MAX, None).unwrap().rates;
    assert!((rates[3].as_mbps() - 2.0).abs() < 0.01, "two of its legs: {rates:?}");
    // 100 from the source and 100 from each other: their access takes only 80.
    assert!(rates[1..3].iter().all(|rate| (rate.as_mbps() - 80.0).abs() < 0.5), "{rates:?}");
}

#[test]
fn unreachable_receivers_have_nothing_and_too_many_legs_are_refused() {
    let graph = Graph::from_matrix(&[vec![None, mbps(10.0), None], vec![], vec![]]);
    let hosts = [Host::RECEIVER; 3];
    let several = Overlay { graph: &graph, source: 0, hosts: &hosts }.several(2, None).unwrap();
    assert_eq!(
        several.rates.iter().map(|rate| rate.as_mbps().round()).collect::<Vec<_>>(),
        [0.0, 10.0, 0.0]
    );
    assert_eq!(several.parents[2], []);
    let graph = full(30, 1.0);
    let overlay = Overlay { graph: &graph, source: 0, hosts: &[Host::RECEIVER; 30] };
    let refused = overlay.several(usize::MAX, None).unwrap_err();
    assert_eq!(refused, SeveralError::TooLarge { legs: 29 * 29, most: MOST_LEGS });
}
