//! Tests of which nodes may measure now.

use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use thalweg_plan::{
    dispatch::{Dispatch, DispatchLimits, GivenOrder, OrderOutcome},
    schedule::Pair,
};
use thalweg_units::{ByteSize, Time};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn limits() -> DispatchLimits {
    DispatchLimits {
        test_bytes: ByteSize::from_bytes(100),
        test_time: Duration::from_secs(5),
        bytes_per_day: ByteSize::from_bytes(1_000),
        deadline: Duration::from_secs(30),
        retries: 2,
        at_once: 4,
        rest: Duration::from_secs(600),
    }
}

fn at(s: u64) -> Time {
    Time::ZERO + secs(s)
}

const fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

const fn cost(bytes: u64) -> ByteSize {
    ByteSize::from_bytes(bytes)
}

fn all_next(dispatch: &mut Dispatch, now: Time) -> Vec<Pair> {
    std::iter::from_fn(|| dispatch.next(now)).map(|given| given.pair).collect()
}

#[test]
fn each_end_is_in_one_measurement_and_at_once_bounds_them() {
    let mut dispatch = Dispatch::new(limits(), 7);
    assert!(dispatch.is_hungry());
    dispatch.enqueue([(0, 1), (1, 2), (2, 3), (0, 1), (4, 4), (3, 0), (4, 5), (6, 7), (8, 9)]);
    assert!(!dispatch.is_hungry());
    assert_eq!(all_next(&mut dispatch, at(0)), [(0, 1), (2, 3), (4, 5), (6, 7)]);
    let first = dispatch.finish(7, OrderOutcome::Measured(cost(50)), at(5)).unwrap();
    assert_eq!((first.pair, first.until), ((0, 1), at(30)));
    assert_eq!(dispatch.finish(7, OrderOutcome::Measured(cost(50)), at(5)), None, "a duplicate");
    assert_eq!(dispatch.finish(99, OrderOutcome::Measured(cost(50)), at(5)), None, "unknown");
    assert_eq!(dispatch.next(at(5)).map(|g| (g.id, g.pair)), Some((11, (8, 9))));
    assert_eq!(
        (dispatch.spent_bytes(0, at(5)), dispatch.spent_bytes(8, at(5))),
        (cost(50), cost(100))
    );
}

#[test]
fn a_node_that_is_down_rests_and_is_listed() {
    let mut dispatch = Dispatch::new(limits(), 1);
    dispatch.enqueue([(0, 1), (2, 1), (1, 3), (2, 3)]);
    let given = dispatch.next(at(0)).unwrap();
    dispatch.finish(given.id, OrderOutcome::Down(1), at(10));
    assert_eq!(dispatch.resting(at(10)), [(1, at(610))]);
    assert_eq!(dispatch.excluded(at(10)).nodes, BTreeSet::from([1]));
    assert_eq!(all_next(&mut dispatch, at(10)), [(2, 3)], "the others go on");
    dispatch.enqueue([(0, 1)]);
    assert_eq!(dispatch.next(at(609)), None);
    assert_eq!(dispatch.queue_length(), 0, "it is dropped while 1 rests");
    assert_eq!(dispatch.spent_bytes(0, at(10)), cost(0), "nothing was sent to it");
    dispatch.enqueue([(0, 1)]);
    assert_eq!(all_next(&mut dispatch, at(610)), [(0, 1)]);
    assert!(dispatch.resting(at(610)).is_empty());
}

#[test]
fn failures_are_tried_again_after_longer_and_longer_waits() {
    let mut dispatch = Dispatch::new(limits(), 1);
    dispatch.enqueue([(0, 1)]);
    for now in [at(0), at(100), at(200)] {
        let given = dispatch.next(now).unwrap();
        assert!(dispatch.excluded(now).pairs.is_empty());
        assert!(dispatch.expire(now + Duration::from_secs(29)).is_empty());
        assert_eq!(dispatch.next_wake(), Some(given.until));
        assert_eq!(dispatch.expire(given.until), [given]);
        assert_eq!(
            dispatch.finish(given.id, OrderOutcome::Measured(cost(1)), given.until),
            None,
            "late"
        );
    }
    assert_eq!(dispatch.next(at(300)), None);
    assert_eq!(dispatch.excluded(at(300)).pairs, BTreeSet::from([(0, 1)]));
    assert_eq!(dispatch.spent_bytes(0, at(300)), cost(300), "each may have cost all it could");
    assert_eq!(dispatch.excluded(at(230 + 180)).pairs, BTreeSet::new(), "minutes, not a day");
    // The earlier failures are remembered: a fourth one waits longer.
    dispatch.enqueue([(0, 1)]);
    let given = dispatch.next(at(410)).unwrap();
    dispatch.finish(given.id, OrderOutcome::Failed(cost(0)), at(411));
    assert_eq!(dispatch.next_wake(), Some(at(411 + 1080)));
    dispatch.enqueue([(0, 1)]);
    assert_eq!(dispatch.next(at(1490)), None);
    // A measurement clears all failures.
    dispatch.enqueue([(0, 1)]);
    let given = dispatch.next(at(1491)).unwrap();
    dispatch.finish(given.id, OrderOutcome::Measured(cost(0)), at(1500));
    dispatch.enqueue([(0, 1)]);
    let given = dispatch.next(at(1500)).unwrap();
    dispatch.finish(given.id, OrderOutcome::Failed(cost(0)), at(1501));
    assert_eq!((dispatch.next(at(1505)), dispatch.next_wake()), (None, Some(at(1506))));
    assert_eq!(all_next(&mut dispatch, at(1506)), [(0, 1)]);
}

#[test]
fn a_busy_end_is_no_failure_however_often_and_others_continue() {
    let mut dispatch = Dispatch::new(limits(), 1);
    dispatch.enqueue([(0, 1), (0, 2)]);
    let mut now = at(0);
    for wait in [5, 10, 20, 40, 60, 60, 60] {
        let given = dispatch.next(now).unwrap();
        assert_eq!(given.pair, (0, 1));
        dispatch.finish(given.id, OrderOutcome::Busy, now);
        assert!(dispatch.excluded(now).pairs.is_empty());
        if wait == 5 {
            assert_eq!(all_next(&mut dispatch, now), [(0, 2)], "it does not wait for the first");
            dispatch.finish(given.id + 1, OrderOutcome::Measured(cost(1)), now);
        }
        assert_eq!((dispatch.next(now), dispatch.next_wake()), (None, Some(now + secs(wait))));
        now += secs(wait);
    }
    assert_eq!(dispatch.spent_bytes(1, now), cost(0));
}

#[test]
fn a_probe_goes_before_all_others_though_its_node_rests() {
    let mut dispatch = Dispatch::new(DispatchLimits { at_once: 1, ..limits() }, 1);
    dispatch.enqueue([(0, 1), (2, 3)]);
    let given = dispatch.next(at(0)).unwrap();
    dispatch.finish(given.id, OrderOutcome::Down(1), at(1));
    dispatch.probe((4, 1));
    dispatch.probe((4, 1));
    assert_eq!((dispatch.queue_length(), dispatch.resting(at(1))), (2, vec![]));
    assert_eq!(all_next(&mut dispatch, at(1)), [(4, 1)]);
    dispatch.probe((4, 1));
    assert_eq!(dispatch.queue_length(), 1, "it is under way");
}

#[test]
fn late_costs_count_and_nodes_without_budget_are_listed_with_the_time() {
    let mut dispatch = Dispatch::new(limits(), 1);
    dispatch.enqueue([(0, 1)]);
    let given = dispatch.next(at(0)).unwrap();
    dispatch.finish(given.id, OrderOutcome::Measured(cost(0)), at(1));
    assert_eq!(dispatch.spent(at(1)), []);
    dispatch.charge((0, 1), cost(950), at(1));
    let until = Some(at(3600) + DAY);
    assert_eq!(dispatch.spent(at(1)), [(0, until), (1, until)]);
    let none = DispatchLimits { bytes_per_day: cost(10), ..limits() };
    let mut dispatch = Dispatch::new(none, 1);
    dispatch.charge((0, 1), cost(1), at(1));
    assert_eq!(dispatch.spent(at(1))[0], (0, None));
}

#[test]
fn both_ends_pay_from_the_daily_budget_and_it_comes_back() {
    let mut dispatch = Dispatch::new(DispatchLimits { at_once: 1, ..limits() }, 1);
    for peer in 1..=10 {
        dispatch.enqueue([(0, peer)]);
        let given = dispatch.next(at(60 * peer as u64)).unwrap();
        dispatch.finish(given.id, OrderOutcome::Measured(cost(100)), at(60 * peer as u64 + 5));
    }
    let now = at(700);
    assert_eq!(
        (dispatch.spent_bytes(0, now), dispatch.spent_bytes(3, now)),
        (cost(1_000), cost(100))
    );
    assert_eq!(dispatch.excluded(now).nodes, BTreeSet::from([0]));
    dispatch.enqueue([(11, 0), (3, 4)]);
    assert_eq!(all_next(&mut dispatch, now), [(3, 4)]);
    dispatch.finish(11, OrderOutcome::Measured(cost(100)), now);
    assert_eq!(dispatch.next(now), None);
    assert!(dispatch.is_hungry(), "others may still measure");
    let back = dispatch.next_wake().unwrap();
    assert!(back >= at(65) + DAY && back <= at(4_000) + DAY, "{back:?}");
    assert_eq!(all_next(&mut dispatch, back), [(11, 0)]);
}

#[test]
fn a_pair_between_two_busy_nodes_does_not_starve() {
    let mut dispatch = Dispatch::new(
        DispatchLimits { bytes_per_day: ByteSize::from_bytes(u64::MAX), at_once: 2, ..limits() },
        1,
    );
    dispatch.enqueue([(0, 2), (1, 3), (0, 1)]);
    let mut under_way: Vec<GivenOrder> = std::iter::from_fn(|| dispatch.next(at(0))).collect();
    // 0 and 1 are never free at the same time: one ends while the other measures.
    for step in 1..200_usize {
        let ended = under_way.remove(0);
        dispatch.finish(ended.id, OrderOutcome::Measured(cost(10)), at(step as u64));
        dispatch.enqueue([(ended.pair.0, 4 + step)]);
        under_way.extend(std::iter::from_fn(|| dispatch.next(at(step as u64))));
        if under_way.iter().any(|given| given.pair == (0, 1)) {
            assert!(step >= 3, "it had to wait in this test");
            return;
        }
    }
    panic!("(0,1) was never given");
}

/// An event at a dispatcher.
#[derive(Clone, Copy, Debug)]
enum Event {
    Want(Pair),
    Next,
    /// Ends the order at this position of those under way, in this manner.
    End(usize, u8),
    Wait(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => (0_usize..7, 0_usize..7).prop_map(Event::Want),
        4 => Just(Event::Next),
        4 => (0_usize..4, 0_u8..8).prop_map(|(at, how)| Event::End(at, how)),
        2 => (0_u64..40).prop_map(Event::Wait),
        1 => (0_u64..9_000).prop_map(Event::Wait),
    ];
    prop::collection::vec(event, 0..300)
}

/// A dispatcher, and an observer's record of it.
struct Watched {
    dispatch: Dispatch,
    now: Time,
    under_way: Vec<GivenOrder>,
    /// By node: (when, bytes).
    spent: BTreeMap<usize, Vec<(Time, u64)>>,
    last_id: u64,
    open: BTreeSet<Pair>,
}

impl Watched {
    fn new() -> Self {
        let dispatch = Dispatch::new(limits(), 1);
        let (spent, open) = (BTreeMap::new(), BTreeSet::new());
        Self { dispatch, now: at(0), under_way: vec![], spent, last_id: 0, open }
    }

    fn next(&mut self) -> bool {
        let Some(given) = self.dispatch.next(self.now) else { return false };
        assert!(given.id > self.last_id, "ids repeat");
        self.last_id = given.id;
        self.open.remove(&given.pair);
        self.under_way.push(given);
        assert!(self.under_way.len() <= limits().at_once);
        let ends: Vec<usize> = self.under_way.iter().flat_map(|g| [g.pair.0, g.pair.1]).collect();
        let distinct: BTreeSet<usize> = ends.iter().copied().collect();
        assert_eq!(ends.len(), distinct.len(), "two at one end: {:?}", self.under_way);
        let resting: Vec<usize> =
            self.dispatch.resting(self.now).into_iter().map(|(node, _)| node).collect();
        assert!(!ends[ends.len() - 2..].iter().any(|node| resting.contains(node)));
        true
    }

    fn end(&mut self, place: usize, how: u8) {
        if place >= self.under_way.len() {
            return;
        }
        let given = self.under_way.remove(place);
        let bytes = u64::from(how) * 100 / 7;
        let (how, bytes) = match how {
            0 => (OrderOutcome::Down(given.pair.0), 0),
            1 => (OrderOutcome::Down(given.pair.1), 0),
            2 | 3 => (OrderOutcome::Failed(cost(bytes)), bytes),
            4 => (OrderOutcome::Busy, 0),
            _ => (OrderOutcome::Measured(cost(bytes)), bytes),
        };
        assert_eq!(self.dispatch.finish(given.id, how, self.now), Some(given));
        self.spend(given, bytes);
        if matches!(how, OrderOutcome::Failed(_) | OrderOutcome::Busy) {
            self.open.insert(given.pair);
        }
    }

    fn spend(&mut self, given: GivenOrder, bytes: u64) {
        for node in [given.pair.0, given.pair.1] {
            let spent = self.spent.entry(node).or_default();
            spent.push((self.now, bytes));
            let today = spent.iter().filter(|(when, _)| self.now.since(*when) < DAY);
            let today: u64 = today.map(|(_, bytes)| bytes).sum();
            assert!(today <= limits().bytes_per_day.as_bytes(), "{node} spent {today} in a day");
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        for given in self.dispatch.expire(self.now) {
            assert!(given.until <= self.now);
            self.under_way.retain(|other| other.id != given.id);
            self.spend(given, limits().test_bytes.as_bytes());
            self.open.insert(given.pair);
        }
        assert!(self.under_way.iter().all(|given| given.until > self.now));
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Want(pair) => {
                self.dispatch.enqueue([pair]);
                let is_under_way = self.under_way.iter().any(|given| given.pair == pair);
                if pair.0 != pair.1 && !is_under_way {
                    self.open.insert(pair);
                }
            }
            Event::Next => _ = self.next(),
            Event::End(place, how) => self.end(place, how),
            Event::Wait(seconds) => self.wait(seconds),
        }
        // Pairs that are excluded now are dropped, and may be asked for again.
        let excluded = self.dispatch.excluded(self.now);
        let resting: Vec<usize> =
            self.dispatch.resting(self.now).into_iter().map(|(node, _)| node).collect();
        self.open.retain(|pair| {
            let rests = resting.contains(&pair.0) || resting.contains(&pair.1);
            !rests && !excluded.pairs.contains(pair)
        });
    }
}

proptest! {
    #[test]
    fn limits_hold_and_every_wanted_pair_is_given_or_excluded(events in events()) {
        let mut watched = Watched::new();
        events.into_iter().for_each(|event| watched.event(event));
        // From now on every measurement succeeds; in each round some time passes, as the dispatcher says.
        for _ in 0..200 {
            while watched.next() {
                watched.end(0, 7);
            }
            while !watched.under_way.is_empty() {
                watched.end(0, 7);
            }
            // A pair that was wanted while its node rested is not open, but waits its turn.
            if watched.open.is_empty() && watched.dispatch.queue_length() == 0 {
                break;
            }
            let wakes = watched.dispatch.next_wake();
            let wakes = wakes.unwrap_or(watched.now).since(watched.now).as_secs();
            watched.event(Event::Wait(wakes + 1));
        }
        prop_assert!(watched.open.is_empty(), "never given: {:?}", watched.open);
        prop_assert_eq!(watched.dispatch.queue_length(), 0);
    }
}
