//! Tests that ways are well chosen, and not changed without reason.

use super::*;
use proptest::prelude::*;
use thalweg_units::Rate;

/// A network of legs, which ways share evenly, behind a destination's access link.
#[derive(Clone, Debug)]
struct World {
    /// Bytes/s by leg.
    legs: BTreeMap<(u32, u32), f64>,
    access: f64,
    destination: u32,
}

impl World {
    fn rates(&self, open: &[Opening]) -> BTreeMap<WayId, f64> {
        let mut on: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        let legs = |opening: &Opening| opening.way.legs(self.destination);
        open.iter().flat_map(legs).for_each(|leg| *on.entry(leg).or_default() += 1.0);
        let rate = |opening: &Opening| {
            let rates = legs(opening).into_iter().map(|leg| self.legs[&leg] / on[&leg]);
            (opening.id, rates.fold(f64::INFINITY, f64::min))
        };
        let mut rates: BTreeMap<WayId, f64> = open.iter().map(rate).collect();
        let by = (self.access / rates.values().sum::<f64>()).min(1.0);
        rates.values_mut().for_each(|rate| *rate *= by);
        rates
    }

    /// Lets 1 s pass and updates what remains.
    fn pass(&self, steering: &mut Steering, remaining: &mut [u64]) {
        let open = steering.open();
        let mut bytes = BTreeMap::new();
        for (id, rate) in self.rates(&open) {
            let source = open.iter().find(|o| o.id == id).unwrap().way.source as usize;
            let moved = (rate as u64).min(remaining[source]);
            remaining[source] -= moved;
            bytes.insert(id, moved);
        }
        let seen = Observation { bytes, remaining: remaining.to_vec(), ..Default::default() };
        steering.observe(Duration::from_secs(1), &seen);
    }

    fn graph(&self, wrong: impl Fn((u32, u32)) -> Option<f64>) -> Graph {
        let mut graph = Graph::new(self.destination as usize + 1);
        for (leg, rate) in &self.legs {
            let rate = wrong(*leg).map(|by| Rate::from_bps((rate * by * 8.0) as u64));
            graph.set(leg.0 as usize, leg.1 as usize, rate);
        }
        graph
    }
}

fn all(destination: u32) -> BTreeSet<u32> {
    (0..destination).collect()
}

const SETTINGS: Settings = Settings {
    ways: 3,
    intermediates: 2,
    interval: Duration::from_secs(1),
    drift: 0.25,
    samples: 3,
    pause: 15,
    replan: true,
};

/// Two sources and an intermediate: 0's direct leg is slow, its detour by 2 is not.
fn detour() -> World {
    let legs = [((0, 3), 1e5), ((0, 1), 1e5), ((0, 2), 9e5), ((1, 3), 1e6), ((1, 0), 1e5)];
    let more = [((1, 2), 1e5), ((2, 3), 9e5), ((2, 0), 1e5), ((2, 1), 1e5)];
    World { legs: legs.into_iter().chain(more).collect(), access: 1e8, destination: 3 }
}

fn run(world: &World, estimates: &Graph, amounts: &[u64], most: u32) -> Option<u32> {
    let relays = all(world.destination);
    let mut steering = Steering::new(SETTINGS, world.destination, amounts, estimates, &relays);
    let mut remaining = amounts.to_vec();
    (0..most).find(|_| {
        world.pass(&mut steering, &mut remaining);
        remaining.iter().all(|left| *left == 0)
    })
}

#[test]
fn a_detour_is_found_with_without_and_against_estimates() {
    let world = detour();
    let amounts = [100_000_000, 100_000_000, 0, 0];
    let right = world.graph(|_| Some(1.0));
    // Both ways of 0 together carry 1 MB/s, as does 1's own: 100 s. Directly, it would take 1,000 s.
    assert!(run(&world, &right, &amounts, 115).is_some());
    assert!(run(&world, &Graph::new(4), &amounts, 125).is_some(), "without estimates");
    let wrong = world.graph(|leg| Some(if leg == (0, 3) { 1.7 } else { 0.3 }));
    assert!(run(&world, &wrong, &amounts, 125).is_some(), "with wrong ones");
}

#[test]
fn sources_do_not_compete_for_a_full_access() {
    let mut world = detour();
    world.access = 1e5;
    let amounts = [10_000_000, 30_000_000, 0, 0];
    let relays = all(3);
    let graph = world.graph(|_| Some(1.0));
    let mut steering = Steering::new(SETTINGS, 3, &amounts, &graph, &relays);
    let mut remaining = amounts.to_vec();
    let mut most = 0;
    for _ in 0..300 {
        world.pass(&mut steering, &mut remaining);
        most = most.max(steering.open().len());
    }
    assert!(most <= 6, "{most} ways");
    assert!(steering.open().len() <= 3, "{:?}", steering.open());
}

#[test]
fn broken_ways_are_replaced_and_a_lost_source_has_none() {
    let amounts = [1_000_000_000, 1_000_000_000, 0, 0];
    let graph = detour().graph(|_| Some(1.0));
    let mut steering = Steering::new(SETTINGS, 3, &amounts, &graph, &all(3));
    for _ in 0..40 {
        let broken: Vec<WayId> = steering.open().iter().map(|open| open.id).collect();
        let seen = Observation {
            remaining: amounts.to_vec(),
            broken: broken.clone(),
            ..Default::default()
        };
        steering.observe(Duration::from_secs(1), &seen);
        let open = steering.open();
        assert!(open.iter().all(|open| !broken.contains(&open.id)));
        for source in 0..2 {
            assert!(open.iter().any(|open| open.way.source == source));
        }
    }
    let seen = Observation { remaining: amounts.to_vec(), lost: vec![0], ..Default::default() };
    steering.observe(Duration::from_secs(1), &seen);
    assert!(steering.open().iter().all(|open| open.way.source == 1));
}

#[test]
fn a_host_that_is_not_a_relay_has_only_its_direct_way() {
    let world = detour();
    let amounts = [100_000_000, 100_000_000, 0, 0];
    let relays = [0, 1].into();
    let graph = world.graph(|_| Some(1.0));
    let mut steering = Steering::new(SETTINGS, 3, &amounts, &graph, &relays);
    let mut remaining = amounts.to_vec();
    for _ in 0..100 {
        assert!(steering.open().iter().all(|open| !open.way.via.contains(&2)));
        world.pass(&mut steering, &mut remaining);
    }
    let steering = Steering::new(SETTINGS, 3, &amounts, &graph, &[1, 2].into());
    let of_0 = steering.open().into_iter().filter(|open| open.way.source == 0);
    assert_eq!(of_0.map(|open| open.way.via).collect::<Vec<_>>(), [Vec::<u32>::new()]);
}

#[test]
fn ways_that_slow_each_other_are_learnt_and_one_is_closed() {
    // Everything passes the destination's access, of which no estimate is known.
    let line = World { access: 1e5, ..detour() };
    let amounts = [1_000_000_000, 0, 0, 0];
    let mut steering = Steering::new(SETTINGS, 3, &amounts, &Graph::new(4), &all(3));
    let mut remaining = amounts.to_vec();
    for _ in 0..40 {
        line.pass(&mut steering, &mut remaining);
    }
    assert!(!steering.shared_sets().is_empty());
    let set = &steering.shared_sets()[0];
    assert!((set.limit - 1e5).abs() < 1e3, "{set:?}");
    assert_eq!(steering.open().len(), 1, "{:?}", steering.open());
}

fn worlds() -> impl Strategy<Value = (World, Vec<u64>, u64)> {
    (3_u32..6, 5.0..8.0_f64, any::<u64>()).prop_flat_map(|(hosts, access, seed)| {
        let destination = hosts;
        let pairs: Vec<(u32, u32)> = (0..hosts)
            .flat_map(|from| (0..=destination).map(move |to| (from, to)))
            .filter(|(from, to)| from != to)
            .collect();
        let rates = prop::collection::vec(4.0..6.5_f64, pairs.len());
        let amounts = prop::collection::vec(0_u64..200_000_000, hosts as usize);
        (rates, amounts).prop_map(move |(rates, mut amounts)| {
            amounts.push(0);
            let legs = pairs.iter().copied().zip(rates.iter().map(|log| 10_f64.powf(*log)));
            let world = World { legs: legs.collect(), access: 10_f64.powf(access), destination };
            (world, amounts, seed)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn ways_are_valid_and_all_data_arrives((world, amounts, seed) in worlds()) {
        let wrong = |leg: (u32, u32)| {
            let draw = seed.rotate_left(leg.0 * 7 + leg.1 * 13) % 100;
            (draw < 80).then(|| 0.3 + 1.4 * draw as f64 / 80.0)
        };
        let relays = all(world.destination);
        let graph = world.graph(wrong);
        let mut steering = Steering::new(SETTINGS, world.destination, &amounts, &graph, &relays);
        let mut remaining = amounts.clone();
        // At worst, all ways of a source share its direct leg.
        let slowest = (0..world.destination)
            .map(|s| amounts[s as usize] as f64 / world.legs[&(s, world.destination)])
            .fold(0.0, f64::max);
        let full = amounts.iter().sum::<u64>() as f64 / world.access;
        let most = 4.0 * (slowest + full) + 100.0;
        let mut ticks = 0.0;
        while remaining.iter().any(|left| *left > 0) {
            let open = steering.open();
            for source in 0..world.destination {
                let own: Vec<&Opening> = open.iter().filter(|o| o.way.source == source).collect();
                prop_assert!(own.len() <= SETTINGS.ways);
                prop_assert_eq!(own.is_empty(), remaining[source as usize] == 0);
                let weights: f64 = own.iter().map(|o| o.weight).sum();
                prop_assert!(own.is_empty() || (weights - 1.0).abs() < 1e-9, "{}", weights);
                for (at, opening) in own.iter().enumerate() {
                    let Way { source, via } = &opening.way;
                    prop_assert!(via.len() <= SETTINGS.intermediates);
                    prop_assert!(!via.contains(source) && !via.contains(&world.destination));
                    prop_assert!(own[..at].iter().all(|other| other.way != opening.way));
                    let distinct: BTreeSet<u32> = via.iter().copied().collect();
                    prop_assert_eq!(distinct.len(), via.len());
                }
            }
            world.pass(&mut steering, &mut remaining);
            ticks += 1.0;
            prop_assert!(ticks < most, "{} s, {:?}", ticks, remaining);
        }
    }

    #[test]
    fn ways_do_not_flap_at_constant_rates((world, mut amounts, _seed) in worlds()) {
        amounts.iter_mut().for_each(|amount| *amount *= 1_000_000);
        let graph = world.graph(|_| Some(1.0));
        let relays = all(world.destination);
        let mut steering = Steering::new(SETTINGS, world.destination, &amounts, &graph, &relays);
        let mut remaining = amounts.clone();
        let mut opened = Vec::new();
        for _ in 0..600 {
            world.pass(&mut steering, &mut remaining);
            opened.push(steering.next);
        }
        // Pauses double: ways that bring nothing are tried only a few more times in the second half.
        let sources = amounts.iter().filter(|amount| **amount > 0).count() as u32;
        let late = opened[599] - opened[300];
        prop_assert!(late <= 30 * sources, "{} openings of {} in all", late, opened[599]);
    }
}
