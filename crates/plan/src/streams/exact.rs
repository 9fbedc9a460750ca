//! The optimum of small problems by exhaustive search, for comparison with the annealing.

use super::{
    flows::Flows,
    problem::{Configuration, Problem},
};

/// The search gives up after this many configurations.
const MOST_TRIED: u64 = 2_000_000;

/// All routes to one subscriber.
type Ways = Vec<Vec<u32>>;

struct Search<'a> {
    problem: &'a Problem,
    ways: Vec<Ways>,
    /// For each subscriber, the most that it and the following ones can add.
    bounds: Vec<f64>,
    now: Configuration,
    best: Configuration,
    most: f64,
    tried: u64,
}

impl Problem {
    /// The greatest sum of weights times utilities, and a configuration that has it; `None`: the problem is too large.
    pub fn exact(&self) -> Option<(f64, Configuration)> {
        let none = Configuration {
            choices: vec![None; self.subscribers.len()],
            parents: vec![std::collections::BTreeMap::new(); self.streams.len()],
        };
        let ways = self.subscribers.iter().map(|subscriber| {
            let mut found = Vec::new();
            let mut way = vec![self.streams[subscriber.stream as usize].publisher];
            self.all_ways(subscriber.stream, subscriber.node, &mut way, &mut found);
            found
        });
        let ways = ways.collect();
        let best = |subscriber: &super::Subscriber| {
            let utilities = subscriber.preferences.iter().map(|one| one.utility);
            subscriber.weight * utilities.fold(0.0, f64::max)
        };
        let mut bounds: Vec<f64> = self.subscribers.iter().map(best).collect();
        bounds.push(0.0);
        for at in (0..self.subscribers.len()).rev() {
            bounds[at] += bounds[at + 1];
        }
        let (now, best) = (none.clone(), none);
        let mut search = Search { problem: self, ways, bounds, now, best, most: 0.0, tried: 0 };
        search.from(0, 0.0);
        (search.tried < MOST_TRIED).then_some((search.most, search.best))
    }

    fn all_ways(&self, stream: u32, to: u32, way: &mut Vec<u32>, found: &mut Ways) {
        let Some(at) = way.last().copied() else { return };
        if at == to {
            found.push(way.clone());
            return;
        }
        if way.len() > usize::from(self.terms.max_legs) || !self.may_send(stream, at) {
            return;
        }
        for next in 0..self.nodes.len() as u32 {
            if !way.contains(&next) && self.leg_of(at, next).is_some() {
                way.push(next);
                self.all_ways(stream, to, way, found);
                way.pop();
            }
        }
    }
}

impl Search<'_> {
    /// Tries all choices and routes of the subscribers from `who` on.
    fn from(&mut self, who: usize, so_far: f64) {
        if so_far > self.most {
            self.most = so_far;
            self.best = self.now.clone();
        }
        if who == self.ways.len() || so_far + self.bounds[who] <= self.most + 1e-12 {
            return;
        }
        let subscriber = &self.problem.subscribers[who];
        let stream = subscriber.stream as usize;
        for way in 0..self.ways[who].len() {
            let Some(added) = self.enter(stream, who, way) else { continue };
            for (choice, preference) in (0..).zip(&subscriber.preferences) {
                if self.tried >= MOST_TRIED {
                    break;
                }
                self.tried += 1;
                self.now.choices[who] = Some(choice);
                if Flows::checked(self.problem, &self.now).is_ok() {
                    self.from(who + 1, so_far + subscriber.weight * preference.utility);
                }
            }
            self.now.choices[who] = None;
            for node in added {
                self.now.parents[stream].remove(&node);
            }
        }
        self.from(who + 1, so_far);
    }

    /// Adds a route to the stream's tree. Returns the added nodes; `None` if another route leads to one of them.
    fn enter(&mut self, stream: usize, who: usize, way: usize) -> Option<Vec<u32>> {
        let parents = &mut self.now.parents[stream];
        let way = &self.ways[who][way];
        let fits = |ends: &[u32]| parents.get(&ends[1]).is_none_or(|parent| *parent == ends[0]);
        if !way.windows(2).all(fits) {
            return None;
        }
        let new: Vec<_> = way.windows(2).filter(|ends| !parents.contains_key(&ends[1])).collect();
        let added = new.iter().map(|ends| ends[1]).collect();
        for ends in new {
            parents.insert(ends[1], ends[0]);
        }
        Some(added)
    }
}
