//! Turns wanted measurements into orders: decides which nodes may measure now (UKAIRO §2.1: each node is in at most one
//! measurement at a time), within budgets, deadlines and retries.
//!
//! Orders are given in the order in which they were wanted, as far as their ends are free. If the ends of a wanted
//! measurement have gone to later ones [`PATIENCE`] times, they are kept free for it from then on, so that nothing
//! starves. A day's budget covers any 24 hours, not a calendar day: only the caller's clock is needed.

mod budget;
mod failures;

use crate::schedule::{ExcludedLegs, Pair};
use budget::Budget;
use failures::{Failures, busy_wait, wait};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};
use thalweg_units::{ByteSize, Time};

/// How often the ends of a wanted measurement may go to later ones.
pub const PATIENCE: u32 = 8;

/// With this many wanted, no more are asked for: bounds memory while budgets are used up.
pub const MOST_WANTED: usize = 1_024;

/// The limits of measuring.
///
/// With `at_once` 0, or a daily budget below one measurement's bytes, no order is ever given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DispatchLimits {
    /// The most bytes of one measurement.
    pub test_bytes: ByteSize,
    /// The longest time of one measurement.
    pub test_time: Duration,
    /// The most bytes that one node sends or receives for measuring in a day.
    pub bytes_per_day: ByteSize,
    /// The longest time from an order to its report.
    pub deadline: Duration,
    /// How often a failed measurement is tried again without being asked for; after that, only if the schedule wants it
    /// again.
    pub retries: u32,
    /// The most measurements at a time in all.
    pub at_once: usize,
    /// How long a node that is down is left alone.
    pub rest: Duration,
}

/// An order that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenOrder {
    pub id: u64,
    /// Sender and receiver.
    pub pair: Pair,
    /// It is void after this time.
    pub until: Time,
}

/// How an order ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderOutcome {
    /// Measured, at this cost.
    Measured(ByteSize),
    /// Failed, at this cost.
    Failed(ByteSize),
    /// It did not begin, because an end was in another measurement: no failure, and no cost.
    Busy,
    /// This node of the pair did not answer.
    Down(usize),
}

/// A wanted measurement.
#[derive(Clone, Copy, Debug)]
struct QueuedMeasurement {
    pair: Pair,
    /// How often in a row an end was busy.
    busy: u32,
    /// How often one of its ends was given to a later one.
    passed: u32,
    /// After a failure, the time from which it may be tried again.
    not_before: Time,
}

impl QueuedMeasurement {
    const fn new(pair: Pair) -> Self {
        Self { pair, busy: 0, passed: 0, not_before: Time::ZERO }
    }
}

/// The wanted measurements, and the orders under way.
#[derive(Clone, Debug)]
pub struct Dispatch {
    limits: DispatchLimits,
    next_id: u64,
    queue: VecDeque<QueuedMeasurement>,
    /// Pairs that are queued or under way.
    known: BTreeSet<Pair>,
    under_way: BTreeMap<u64, (GivenOrder, QueuedMeasurement)>,
    /// Nodes that are in a measurement.
    busy: BTreeSet<usize>,
    budgets: BTreeMap<usize, Budget>,
    /// Nodes that are down, and until when they are left alone.
    rests: BTreeMap<usize, Time>,
    /// Pairs whose retries are used up, and until when they are left alone.
    given_up: BTreeMap<Pair, Time>,
    failures: Failures,
    /// Whether the last search found no measurement that may be given.
    stuck: bool,
    /// The time at which a budget, or the wait after a failure, frees a wanted measurement.
    freed: Option<Time>,
}

impl Dispatch {
    /// Creates a dispatch without wanted measurements; ids count from `first_id`.
    pub fn new(limits: DispatchLimits, first_id: u64) -> Self {
        Self {
            limits,
            next_id: first_id,
            queue: VecDeque::new(),
            known: BTreeSet::new(),
            under_way: BTreeMap::new(),
            busy: BTreeSet::new(),
            budgets: BTreeMap::new(),
            rests: BTreeMap::new(),
            given_up: BTreeMap::new(),
            failures: Failures::default(),
            stuck: false,
            freed: None,
        }
    }

    /// Queues measurements behind those wanted before. Known ones, and those between a node and itself, are ignored.
    pub fn enqueue(&mut self, pairs: impl IntoIterator<Item = Pair>) {
        for pair in pairs {
            if pair.0 != pair.1 && self.known.insert(pair) {
                self.queue.push_back(QueuedMeasurement::new(pair));
                self.stuck = false;
            }
        }
    }

    /// Queues one measurement before all others. Its ends do not rest any longer and the pair is no longer given up,
    /// because asking a node that was down is the way to see whether it answers again.
    pub fn probe(&mut self, pair: Pair) {
        if pair.0 == pair.1 || self.under_way().any(|given| given.pair == pair) {
            return;
        }
        self.rests.retain(|node, _| !ends(pair).contains(node));
        self.given_up.remove(&pair);
        self.queue.retain(|wanted| wanted.pair != pair);
        self.known.insert(pair);
        self.queue.push_front(QueuedMeasurement::new(pair));
        self.stuck = false;
    }

    /// The number of measurements that are wanted and not under way.
    pub fn queue_length(&self) -> usize {
        self.queue.len()
    }

    /// The orders under way.
    pub fn under_way(&self) -> impl Iterator<Item = GivenOrder> {
        self.under_way.values().map(|(given, _)| *given)
    }

    /// The bytes that a node has sent and received for measuring in the last 24 hours, and those that it may still use
    /// in its present measurement.
    pub fn spent_bytes(&self, node: usize, now: Time) -> ByteSize {
        ByteSize::from_bytes(self.budgets.get(&node).map_or(0, |budget| budget.spent_bytes(now)))
    }

    /// The next order that may be given now; it counts as under way.
    ///
    /// Wanted measurements that are excluded by now are dropped. O(wanted).
    pub fn next(&mut self, now: Time) -> Option<GivenOrder> {
        self.drop_excluded(now);
        self.freed = None;
        let found = if self.under_way.len() < self.limits.at_once { self.find(now) } else { None };
        self.stuck = found.is_none();
        let wanted = self.queue.remove(found?)?;
        let given =
            GivenOrder { id: self.next_id, pair: wanted.pair, until: now + self.limits.deadline };
        self.next_id += 1;
        for node in ends(wanted.pair) {
            self.busy.insert(node);
            self.budgets.entry(node).or_default().reserve(self.limits.test_bytes.as_bytes());
        }
        self.under_way.insert(given.id, (given, wanted));
        Some(given)
    }

    fn drop_excluded(&mut self, now: Time) {
        self.rests.retain(|_, until| *until > now);
        self.given_up.retain(|_, until| *until > now);
        self.failures.forget_old(now);
        let (rests, given_up, known) = (&self.rests, &self.given_up, &mut self.known);
        self.queue.retain(|wanted| {
            let is_out = ends(wanted.pair).iter().any(|node| rests.contains_key(node))
                || given_up.contains_key(&wanted.pair);
            if is_out {
                known.remove(&wanted.pair);
            }
            !is_out
        });
    }

    /// The first queued measurement that may be given. Earlier ones that share an end with it count that it passed
    /// them.
    fn find(&mut self, now: Time) -> Option<usize> {
        let mut reserved: BTreeSet<usize> = BTreeSet::new();
        let mut found = None;
        for (at, wanted) in self.queue.iter().enumerate() {
            if wanted.not_before > now {
                self.freed = self.freed.into_iter().chain([wanted.not_before]).min();
                continue;
            }
            let nodes = ends(wanted.pair);
            let is_free = nodes.iter().all(|n| !self.busy.contains(n) && !reserved.contains(n));
            let paid = self.paid_at(wanted.pair, now);
            if is_free && paid == Some(now) {
                found = Some(at);
                break;
            }
            if paid.is_some_and(|at| at > now) {
                self.freed = self.freed.into_iter().chain(paid).min();
            }
            if wanted.passed >= PATIENCE {
                reserved.extend(nodes);
            }
        }
        let at = found?;
        let [i, j] = ends(self.queue[at].pair);
        for earlier in self.queue.iter_mut().take(at) {
            let shares = ends(earlier.pair).iter().any(|node| *node == i || *node == j);
            earlier.passed += u32::from(shares && earlier.not_before <= now);
        }
        Some(at)
    }

    /// When both ends' budgets allow one more measurement; `None` if waiting alone cannot bring that.
    fn paid_at(&self, pair: Pair, now: Time) -> Option<Time> {
        let (bytes, most) =
            (self.limits.test_bytes.as_bytes(), self.limits.bytes_per_day.as_bytes());
        let fresh = Budget::default();
        let at = |node: usize| self.budgets.get(&node).unwrap_or(&fresh).free_at(bytes, most, now);
        Some(at(pair.0)?.max(at(pair.1)?))
    }

    /// Records an order's end. Returns the order; `None` if it was not under way (late, duplicate, unknown).
    ///
    /// A failed measurement is wanted again, behind all others and after a wait: 5 s after the first failure, six times
    /// as long after each further one, at most an hour. Once its retries are used up, the pair is excluded for that
    /// long instead. A busy one is wanted again after 5 s to a minute. If a node is down, all that is wanted of it is
    /// dropped, and the node is excluded while it rests. Bytes that were not spent are free again.
    pub fn finish(&mut self, id: u64, how: OrderOutcome, now: Time) -> Option<GivenOrder> {
        let (given, wanted) = self.under_way.remove(&id)?;
        let (cost, down) = match how {
            OrderOutcome::Measured(cost) | OrderOutcome::Failed(cost) => (cost, None),
            OrderOutcome::Down(node) => {
                (ByteSize::ZERO, Some(node).filter(|node| ends(given.pair).contains(node)))
            }
            OrderOutcome::Busy => (ByteSize::ZERO, None),
        };
        for node in ends(given.pair) {
            self.busy.remove(&node);
            let budget = self.budgets.entry(node).or_default();
            budget.settle(self.limits.test_bytes.as_bytes(), cost.as_bytes(), now);
        }
        self.known.remove(&given.pair);
        self.stuck = false;
        match (how, down) {
            (OrderOutcome::Measured(_), _) => self.failures.forgive(given.pair),
            (OrderOutcome::Busy, _) => self.postpone(wanted, now),
            (_, Some(node)) => {
                self.rests.insert(node, now + self.limits.rest);
                self.drop_excluded(now);
            }
            _ => self.retry(wanted, now),
        }
        Some(given)
    }

    fn retry(&mut self, wanted: QueuedMeasurement, now: Time) {
        let failed = self.failures.count(wanted.pair, now);
        let until = now + wait(failed);
        if failed > self.limits.retries {
            self.given_up.insert(wanted.pair, until);
        } else {
            self.requeue(QueuedMeasurement {
                not_before: until,
                ..QueuedMeasurement::new(wanted.pair)
            });
        }
    }

    fn postpone(&mut self, wanted: QueuedMeasurement, now: Time) {
        let busy = wanted.busy.saturating_add(1);
        let not_before = now + busy_wait(busy);
        self.requeue(QueuedMeasurement { busy, not_before, ..QueuedMeasurement::new(wanted.pair) });
    }

    fn requeue(&mut self, wanted: QueuedMeasurement) {
        self.known.insert(wanted.pair);
        self.queue.push_back(wanted);
    }

    /// Charges each end of a measurement for bytes that were not reported at its end.
    pub fn charge(&mut self, pair: Pair, more: ByteSize, now: Time) {
        for node in ends(pair) {
            self.budgets.entry(node).or_default().settle(0, more.as_bytes(), now);
        }
    }

    /// Ends the orders whose deadline is over: they failed, and may have cost a measurement's full bytes.
    pub fn expire(&mut self, now: Time) -> Vec<GivenOrder> {
        let over = |(given, _): &&(GivenOrder, QueuedMeasurement)| given.until <= now;
        let ids: Vec<u64> = self.under_way.values().filter(over).map(|(g, _)| g.id).collect();
        let cost = OrderOutcome::Failed(self.limits.test_bytes);
        ids.into_iter().filter_map(|id| self.finish(id, cost, now)).collect()
    }

    /// What a schedule passes over for now: nodes that rest, nodes whose budget has no room for one more measurement,
    /// and pairs whose retries are used up.
    ///
    /// Measurements wanted of a node without budget stay wanted.
    pub fn excluded(&self, now: Time) -> ExcludedLegs {
        // Bytes that a measurement under way does not spend are free soon, so its ends do not count as out of budget.
        let poor = self.spent(now).into_iter().map(|(node, _)| node);
        let resting = self.rests.iter().filter(|(_, until)| **until > now);
        let nodes = resting.map(|(node, _)| *node);
        let nodes = nodes.chain(poor).collect();
        let pairs = self.given_up.iter().filter(|(_, until)| **until > now);
        ExcludedLegs { nodes, pairs: pairs.map(|(pair, _)| *pair).collect() }
    }

    /// Nodes that rest because they did not answer, and until when.
    pub fn resting(&self, now: Time) -> Vec<(usize, Time)> {
        let rests = self.rests.iter().filter(|(_, until)| **until > now);
        rests.map(|(node, until)| (*node, *until)).collect()
    }

    /// Nodes whose daily bytes have no room for one more measurement, and when they will have. `None` means never,
    /// because one measurement takes more than a day's bytes.
    pub fn spent(&self, now: Time) -> Vec<(usize, Option<Time>)> {
        let (bytes, most) =
            (self.limits.test_bytes.as_bytes(), self.limits.bytes_per_day.as_bytes());
        let idle = self.budgets.iter().filter(|(node, _)| !self.busy.contains(node));
        let free = idle.map(|(node, budget)| (*node, budget.free_at(bytes, most, now)));
        free.filter(|(_, at)| *at != Some(now)).collect()
    }

    /// Whether fewer measurements are wanted than could be given soon, so that the schedule should be asked for more.
    pub fn is_hungry(&self) -> bool {
        let room = self.under_way.len() < self.limits.at_once;
        self.queue.len() < MOST_WANTED
            && (self.queue.len() < self.limits.at_once || (self.stuck && room))
    }

    /// The next time at which something changes without a call: a deadline, a rest's end, a budget.
    pub fn next_wake(&self) -> Option<Time> {
        let deadlines = self.under_way.values().map(|(given, _)| given.until);
        let rests = self.rests.values().chain(self.given_up.values()).copied();
        deadlines.chain(rests).chain(self.freed).min()
    }
}

const fn ends(pair: Pair) -> [usize; 2] {
    [pair.0, pair.1]
}
