//! Known legs out of nowhere: for experiments with meshes that nobody has.

use super::{
    known::Entry,
    planner::{End, Ordered},
    state::State,
};
use crate::Oracle;
use std::time::{Duration, Instant};
use thalweg_measure::{Bound, Method};
use thalweg_units::Time;

/// One measured leg.
#[derive(Clone, Debug)]
pub struct Leg {
    /// The sender's position among the roster's members.
    pub from: usize,
    /// The receiver's.
    pub to: usize,
    /// bit/s.
    pub bps: f64,
    /// How long ago it was measured.
    pub age: Duration,
}

impl Oracle {
    /// Takes these legs for measured, as if both ends had reported them; nothing is kept. For
    /// experiments: who is an oracle's owner can as well write to its database.
    pub async fn assume(&self, legs: impl IntoIterator<Item = Leg>) {
        let mut state = self.inner.measuring.state.lock().await;
        self.assume_in(&mut state, legs);
        drop(state);
        self.inner.measuring.news.notify_one();
    }

    fn assume_in(&self, state: &mut State, legs: impl IntoIterator<Item = Leg>) {
        let (newest, now) = (self.newest(), self.inner.measuring.now().time);
        state.follow(&newest.roster, &self.inner.node, now);
        let names = newest.roster.members.iter().map(|member| &member.name);
        let slots: Vec<_> = names.map(|name| state.nodes.by_name(name)).collect();
        let slot = |at: usize| slots.get(at).copied().flatten();
        for leg in legs {
            if let (Some(from), Some(to)) = (slot(leg.from), slot(leg.to)) {
                state.assume((from, to), leg.bps, now - leg.age, now);
            }
        }
    }

    /// All members ask for orders just now, as far as the service knows. For experiments.
    pub async fn assume_present(&self) {
        let measuring = &*self.inner.measuring;
        let newest = self.newest();
        let mut state = measuring.state.lock().await;
        let now = measuring.now().time;
        state.follow(&newest.roster, &self.inner.node, now);
        (0..state.nodes.len()).for_each(|slot| state.presence.heard(slot, now));
    }

    /// Ranks all that is known, taken from the table anew: how many legs that is, and how long
    /// it took. Blocks. For experiments.
    pub fn rank_timed(&self) -> (usize, Duration) {
        let measuring = &*self.inner.measuring;
        measuring.state.blocking_lock().known.forget_look();
        let began = Instant::now();
        let ranked = measuring.rank_now();
        (ranked.graph.measured(), began.elapsed())
    }

    /// How long the ranking takes that follows from the last one and these legs. Blocks. For
    /// experiments.
    pub fn rank_next_timed(&self, legs: impl IntoIterator<Item = Leg>) -> Duration {
        let measuring = &*self.inner.measuring;
        // What is new besides is ranked before.
        measuring.rank_now();
        self.assume_in(&mut measuring.state.blocking_lock(), legs);
        let began = Instant::now();
        measuring.rank_now();
        began.elapsed()
    }

    /// Gives orders as if this oracle had just been elected and each measurement ended at
    /// once, one after the other: how long the first look took, which fills all places, and
    /// each of the others, which gives one order. Blocks. For experiments.
    pub fn orders_timed(&self, looks: usize) -> (Duration, Vec<Duration>) {
        let measuring = &*self.inner.measuring;
        let mut state = measuring.state.blocking_lock();
        state.planner.elected(1);
        let now = measuring.now().time;
        let (mut under_way, first) = state.orders_now(now);
        let mut times = vec![];
        while times.len() < looks && !under_way.is_empty() {
            let order = under_way.remove(0);
            state.planner.ended(order.id, End::Measured(1), now);
            let bps = 1e6 * (1 + order.id % 300) as f64;
            state.assume(order.leg, bps, now, now);
            let (orders, took) = state.orders_now(now);
            under_way.extend(orders);
            times.push(took);
        }
        (first, times)
    }
}

impl State {
    fn orders_now(&mut self, now: Time) -> (Vec<Ordered>, Duration) {
        let began = Instant::now();
        let orders = self.planner.orders(&self.known, now, |_| true);
        (orders, began.elapsed())
    }

    fn assume(&mut self, leg: super::known::Leg, bps: f64, at: Time, now: Time) {
        let entry = Entry {
            leg,
            bps,
            spread: None,
            method: Method::Transfer,
            bound: Bound::Exact,
            reporter: self.known.own(),
            is_sole: false,
            at,
        };
        self.enter(&entry, now);
    }
}
