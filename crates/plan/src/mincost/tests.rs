//! Tests against brute force, against the proof of optimality, and with large numbers.

use super::*;
use proptest::prelude::*;

fn arc(from: u32, to: u32, capacity: u64, cost: i64) -> Arc {
    Arc { from, to, capacity, cost }
}

fn network() -> impl Strategy<Value = Network> {
    (2_usize..7).prop_flat_map(|nodes| {
        let end = 0..nodes as u32;
        let arcs = prop::collection::vec((end.clone(), end, 0_u64..9, -4_i64..20), 0..20);
        let supply = prop::collection::vec(-6_i64..7, nodes - 1);
        (supply, arcs).prop_map(|(mut supply, arcs)| {
            supply.push(-supply.iter().sum::<i64>());
            let arcs = arcs.into_iter().map(|(a, b, c, d)| arc(a, b, c, d)).collect();
            Network::new(supply, arcs).unwrap()
        })
    })
}

/// The maximum flow from a super source to a super sink, by single augmenting paths.
fn movable(network: &Network) -> u64 {
    let nodes = network.supply().len();
    let mut room = vec![vec![0_u64; nodes + 2]; nodes + 2];
    for arc in network.arcs() {
        room[arc.from as usize][arc.to as usize] += arc.capacity;
    }
    for (node, supply) in network.supply().iter().enumerate() {
        let (from, to) = if *supply > 0 { (nodes, node) } else { (node, nodes + 1) };
        room[from][to] += supply.unsigned_abs();
    }
    let mut moved = 0;
    while step(&mut room, nodes, nodes + 1, &mut vec![false; nodes + 2]) {
        moved += 1;
    }
    moved
}

fn step(room: &mut [Vec<u64>], at: usize, end: usize, seen: &mut Vec<bool>) -> bool {
    if at == end {
        return true;
    }
    seen[at] = true;
    for next in 0..room.len() {
        if !seen[next] && room[at][next] > 0 && step(room, next, end, seen) {
            room[at][next] -= 1;
            room[next][at] += 1;
            return true;
        }
    }
    false
}

proptest! {
    #[test]
    fn an_answer_is_proved_optimal_by_its_potentials(network in network()) {
        let supplied: u64 = network.supply().iter().filter(|s| **s > 0).map(|s| *s as u64).sum();
        match network.cheapest() {
            Ok(flow) => prop_assert!(flow.is_optimal_for(&network), "{flow:?}"),
            Err(Infeasible { stranded }) => {
                prop_assert_eq!(stranded, supplied - movable(&network));
            }
        }
    }
}

#[test]
fn the_cheaper_way_is_used_until_it_is_full() {
    let arcs = vec![arc(0, 1, 3, 1), arc(1, 2, 9, 1), arc(0, 2, 9, 5)];
    let network = Network::new(vec![5, 0, -5], arcs).unwrap();
    let flow = network.cheapest().unwrap();
    assert_eq!(flow.on, [3, 3, 2]);
    assert_eq!(flow.cost(&network), 16);
}

#[test]
fn a_cycle_of_negative_cost_is_filled() {
    let network = Network::new(vec![0, 0], vec![arc(0, 1, 4, -3), arc(1, 0, 2, 1)]).unwrap();
    assert_eq!(network.cheapest().unwrap().on, [2, 2]);
}

#[test]
fn units_that_cannot_leave_are_counted() {
    let network = Network::new(vec![5, -5], vec![arc(0, 1, 3, 0)]).unwrap();
    assert_eq!(network.cheapest(), Err(Infeasible { stranded: 2 }));
}

#[test]
fn ten_terabytes_in_bytes_do_not_overflow() {
    let bytes = 10_i64 << 40;
    let arcs = (0..100).map(|i| arc(i, i + 1, 1 << 60, 1 << 50)).collect();
    let mut supply = vec![0; 101];
    (supply[0], supply[100]) = (bytes, -bytes);
    let network = Network::new(supply, arcs).unwrap();
    let flow = network.cheapest().unwrap();
    assert!(flow.is_optimal_for(&network));
    assert_eq!(flow.cost(&network), (i128::from(bytes) * 100) << 50);
}

#[test]
fn invalid_networks_are_refused_with_a_reason() {
    let no_node = Network::new(vec![0], vec![arc(0, 1, 1, 1)]);
    assert_eq!(no_node, Err(NetworkError::NoSuchNode { arc: 0 }));
    assert_eq!(Network::new(vec![2, -1], vec![]), Err(NetworkError::Unbalanced(1)));
    let dear = Network::new(vec![0, 0], vec![arc(0, 1, 1, i64::MAX)]);
    assert_eq!(dear, Err(NetworkError::OutOfRange));
}

#[test]
fn a_flow_that_is_not_the_cheapest_is_detected() {
    let arcs = vec![arc(0, 1, 5, 1), arc(0, 1, 5, 2)];
    let network = Network::new(vec![5, -5], arcs).unwrap();
    let mut flow = network.cheapest().unwrap();
    assert!(flow.is_optimal_for(&network));
    flow.on = vec![0, 5];
    assert!(flow.is_flow_for(&network) && !flow.is_optimal_for(&network));
    flow.on = vec![6, 0];
    assert!(!flow.is_flow_for(&network));
}
