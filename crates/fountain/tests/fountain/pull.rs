//! Pulls from several parents.

use crate::swarm::{Served, Swarm};
use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{collections::BTreeMap, time::Duration};
use thalweg_fountain::{Geometry, HaveSet, ParentId, Pull, PullSettings, ReceiptOutcome};
use thalweg_units::{Rate, Time};

fn rng(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

/// 32 MiB in symbols of 16 KiB.
fn cut() -> Geometry {
    Geometry::for_length(32 << 20).expect("a cut")
}

/// The transfer time in seconds at this total rate.
fn best(mbps: f64) -> f64 {
    cut().length() as f64 * 8e-6 / mbps
}

#[test]
fn rates_of_parents_add_up() {
    let parents = [Served::new(50.0, 20), Served::new(30.0, 80), Served::new(2.0, 5)];
    let end = Swarm::new(cut(), &parents, 1).run();
    assert!(end.seconds <= best(82.0) * 1.1, "{} s instead of {}", end.seconds, best(82.0));
    assert!(end.duplicates * 100 <= cut().symbols(), "{} duplicates", end.duplicates);
}

#[test]
fn rates_of_unknown_parents_are_found() {
    let parents = [Served::new(400.0, 40).unknown(), Served::new(100.0, 10).unknown()];
    let end = Swarm::new(cut(), &parents, 2).run();
    // Half a second to find the rates.
    assert!(end.seconds <= best(500.0) + 0.5, "{} s instead of {}", end.seconds, best(500.0));
}

#[test]
fn a_dead_parent_is_replaced() {
    let parents = [Served::new(50.0, 20), Served::new(50.0, 20).dies(1.0)];
    let end = Swarm::new(cut(), &parents, 3).run();
    assert_eq!(end.left, [ParentId(1)]);
    // One second at both rates, and the rest at one.
    let rest = best(50.0) - 1.0;
    assert!(end.seconds <= rest * 1.05 + 0.1, "{} s instead of {rest}", end.seconds);
    assert_eq!(end.duplicates, 0);
}

#[test]
fn the_tail_of_a_very_slow_parent_is_requested_from_another() {
    // It is expected to be fast, so much is requested from it, but each symbol takes about 0.7 s.
    let crawling = Served::new(0.2, 20).said(50.0);
    let end = Swarm::new(cut(), &[Served::new(50.0, 20), crawling], 4).run();
    assert!(end.left.is_empty(), "it is not silent");
    assert!(end.duplicates * 100 <= cut().symbols(), "{} duplicates", end.duplicates);
    assert!(end.seconds <= best(50.0) * 1.3, "{} s instead of {}", end.seconds, best(50.0));
}

#[test]
fn parents_that_hold_a_part_are_used_and_rare_chunks_come_first() {
    let first = Served::new(20.0, 20).holding(0..1024);
    let end = Swarm::new(cut(), &[first, Served::new(20.0, 20)], 5).run();
    assert!(end.seconds <= best(40.0) * 1.15, "{} s instead of {}", end.seconds, best(40.0));
    assert!(end.sent[0] >= 900, "{:?}", end.sent);
}

#[test]
fn siblings_request_different_chunks() {
    let asked = |seed| {
        let mut pull = Pull::new(cut(), HaveSet::empty(&cut()), PullSettings::default());
        pull.join(ParentId(0), Rate::from_mbps(100.0), Duration::from_millis(200), Time::ZERO);
        pull.record_held(ParentId(0), 0..u64::MAX);
        pull.next_requests(ParentId(0), Time::ZERO, &mut rng(seed))
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
    };
    let (first, second) = (asked(1), asked(2));
    assert_eq!((first.len(), second.len()), (305, 305), "twice 100 Mbit/s times 200 ms");
    let shared = first.iter().filter(|index| second.contains(index)).count();
    assert!(shared < 152, "{shared} of 305 are asked by both");
}

/// A pull, and what a test observes of it.
struct Outside {
    pull: Pull,
    rng: Xoshiro256PlusPlus,
    now: Time,
    /// Symbols requested from each parent and not sent yet, in order.
    queues: BTreeMap<ParentId, Vec<u64>>,
    duplicates: u64,
    held: HaveSet,
}

impl Outside {
    fn new(seed: u64, geometry: Geometry) -> Self {
        let held = HaveSet::empty(&geometry);
        let pull = Pull::new(geometry, held.clone(), PullSettings::default());
        let now = Time::from_nanos(1);
        Self { pull, rng: rng(seed), now, queues: BTreeMap::new(), duplicates: 0, held }
    }

    fn pick(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    fn join(&mut self, geometry: &Geometry) {
        let id = ParentId(self.pick(5));
        let rate = Rate::from_mbps(self.pick(100) as f64);
        self.pull.join(id, rate, Duration::from_millis(20), self.now);
        self.queues.insert(id, Vec::new());
        let start = self.pick(geometry.symbols());
        self.pull.record_held(id, start..start + 700);
    }

    fn ask(&mut self, id: ParentId) {
        let asks = self.pull.next_requests(id, self.now, &mut self.rng);
        for index in asks.into_iter().flatten() {
            assert!(!self.held.contains(index), "{index} is held and asked");
            let queue = self.queues.get_mut(&id).expect("a parent");
            assert!(!queue.contains(&index), "{index} is asked twice of one parent");
            queue.push(index);
        }
    }

    /// The parent sends one of the first three requested symbols, or a wrong one.
    fn send(&mut self, id: ParentId, rubbish: bool) {
        let length = self.queues.get(&id).map_or(0, Vec::len) as u64;
        if length == 0 {
            return;
        }
        let at = self.pick(length.min(3)) as usize;
        let index = self.queues.get_mut(&id).expect("a parent").remove(at);
        if rubbish {
            self.pull.reject(id, index, self.now);
            return;
        }
        let fresh = self.held.insert(index);
        self.duplicates += u64::from(!fresh);
        let expected = if fresh { ReceiptOutcome::Fresh } else { ReceiptOutcome::Duplicate };
        assert_eq!(self.pull.receive(id, index, self.now), expected);
    }

    fn leave(&mut self, id: ParentId) {
        let status = self.pull.leave(id);
        let queue = self.queues.remove(&id);
        assert_eq!(status.map(|s| s.outstanding), queue.map(|queue| queue.len() as u64));
    }

    fn step(&mut self, geometry: &Geometry) {
        let later = self.pick(40);
        self.now += Duration::from_millis(later);
        let id = ParentId(self.pick(5));
        match self.pick(20) {
            0 => self.join(geometry),
            1 => self.leave(id),
            2 => self.send(id, true),
            3..=8 => self.ask(id),
            _ => (0..self.pick(40)).for_each(|_| self.send(id, false)),
        }
        let asked: u64 = self.queues.values().map(|queue| queue.len() as u64).sum();
        assert!(self.pull.progress().asked <= asked);
        assert_eq!(self.pull.held(), &self.held);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn each_symbol_arrives_once_whatever_parents_do(seed in any::<u64>(), steps in 0..300) {
        let geometry = Geometry::new(20 << 20, 1 << 14, 64, 8).expect("a cut");
        let mut outside = Outside::new(seed, geometry);
        (0..steps).for_each(|_| outside.step(&geometry));
        // All parents leave. Then one that holds everything completes the object.
        (0..5).for_each(|id| outside.leave(ParentId(id)));
        prop_assert_eq!(outside.pull.progress().asked, 0);
        let last = ParentId(9);
        outside.pull.join(last, Rate::ZERO, Duration::ZERO, outside.now);
        outside.queues.insert(last, Vec::new());
        outside.pull.record_held(last, 0..geometry.symbols());
        for _ in 0..100_000 {
            outside.now += Duration::from_millis(1);
            outside.ask(last);
            outside.send(last, false);
            if outside.pull.is_complete() {
                break;
            }
        }
        prop_assert!(outside.pull.is_complete());
        prop_assert_eq!(outside.pull.progress().duplicates, outside.duplicates);
        prop_assert!(outside.duplicates * 100 <= geometry.symbols(), "{}", outside.duplicates);
    }
}

#[test]
fn unrequested_symbols_are_no_sign_of_life_and_are_not_accepted() {
    let mut pull = Pull::new(cut(), HaveSet::empty(&cut()), PullSettings::default());
    let (parent, mut now) = (ParentId(1), Time::ZERO);
    pull.join(parent, Rate::from_mbps(80.0), Duration::from_millis(10), now);
    pull.record_held(parent, 0..1);
    assert_eq!(pull.next_requests(parent, now, &mut rng(1)), std::slice::from_ref(&(0..1)));
    assert_eq!(pull.receive(parent, 0, now), ReceiptOutcome::Fresh);
    pull.record_held(parent, 1..2);
    assert_eq!(pull.next_requests(parent, now, &mut rng(1)), std::slice::from_ref(&(1..2)));
    for _ in 0..100 {
        now += Duration::from_millis(100);
        assert_eq!(pull.receive(parent, 0, now), ReceiptOutcome::Unrequested);
        assert_eq!(pull.receive(parent, 7, now), ReceiptOutcome::Unrequested);
    }
    assert_eq!(pull.silent_parents(now), [parent]);
    assert_eq!((pull.progress().held, pull.progress().duplicates), (1, 0));
}

#[test]
fn symbols_obtained_otherwise_are_not_requested_and_unknown_parents_are_ignored() {
    let mut pull = Pull::new(cut(), HaveSet::empty(&cut()), PullSettings::default());
    let (parent, now) = (ParentId(1), Time::ZERO);
    assert_eq!(pull.receive(parent, 0, now), ReceiptOutcome::Unknown);
    assert!(pull.next_requests(parent, now, &mut rng(1)).is_empty());
    pull.record_obtained(16..u64::MAX);
    pull.join(parent, Rate::ZERO, Duration::ZERO, now);
    #[expect(clippy::reversed_empty_ranges, reason = "as a neighbour may send it")]
    pull.record_held(parent, 9..3);
    pull.record_held(parent, u64::MAX..u64::MAX);
    assert!(pull.next_requests(parent, now, &mut rng(1)).is_empty(), "it holds nothing");
    pull.record_held(parent, 0..u64::MAX);
    let asks: Vec<u64> =
        pull.next_requests(parent, now, &mut rng(1)).into_iter().flatten().collect();
    assert_eq!(asks, (0..16).collect::<Vec<u64>>());
    assert_eq!(pull.receive(parent, u64::MAX, now), ReceiptOutcome::Unknown);
    pull.withdraw(parent, 8..u64::MAX, now);
    assert_eq!(pull.status(parent).map(|s| (s.outstanding, s.holds)), Some((8, 8)));
    assert!(pull.next_requests(parent, now, &mut rng(1)).is_empty(), "it holds no others");
    pull.record_held(parent, 8..16);
    let again: Vec<u64> =
        pull.next_requests(parent, now, &mut rng(1)).into_iter().flatten().collect();
    assert_eq!(again, (8..16).collect::<Vec<u64>>());
    (0..16).for_each(|index| assert_eq!(pull.receive(parent, index, now), ReceiptOutcome::Fresh));
    assert!(pull.is_complete() && pull.silent_parents(Time::MAX).is_empty());
    assert_eq!(pull.receive(parent, 3, now), ReceiptOutcome::Unrequested);
    let status = pull.status(parent).expect("a parent");
    assert_eq!((status.fresh_bytes, status.duplicate_bytes), (16 << 14, 1 << 14));
}
