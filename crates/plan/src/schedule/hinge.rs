//! Legs of which TCP has to tell, since trains leave open which of two ways is the better.

use super::{Known, Pair, RangeOf};
use crate::{Graph, draw};
use rand_core::Rng;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use thalweg_measure::{
    Bound,
    overlay::{self, How, Link, OverlaySettings, hinges},
};

/// Legs that wait to be looked at. The oldest goes: it is told of again with its next range.
const MOST: usize = 1024;

/// Legs that are looked at in a turn, and pairs of each: O(d) each.
const LOOKED: usize = 4;
const PAIRS: usize = 16;

/// So many ways to one destination are compared, the fastest first: more than the two that may be the best, since
/// ranges can change their order.
const WAYS: usize = 4;

/// What TCP reached is off by so much, nine times of ten (experiments/reports/mgrp.md).
const OFF: f64 = 0.1;

/// None is asked for within this time of its last measurement, s: so long a range counts.
const AGAIN_S: f64 = thalweg_measure::MAX_SPARE_AGE.as_secs() as f64;

/// Legs whose ranges by trains leave open which of the two best ways between two nodes is the better: UKAIRO's table
/// has one value of a leg, MGRP's overlay a range (§3.2).
///
/// Needs [`Known::ranges`] and [`Known::age_s`], and finds nothing without them.
#[derive(Clone, Debug, Default)]
pub(super) struct Hinge {
    /// Trains have told of them, the oldest first.
    told: VecDeque<Pair>,
    /// Asked for, and its age then.
    asked: BTreeMap<Pair, f64>,
}

impl Hinge {
    /// Trains have told of this leg.
    pub(super) fn told(&mut self, pair: Pair) {
        if !self.told.contains(&pair) {
            self.told.push_back(pair);
        }
        if self.told.len() > MOST {
            self.told.pop_front();
        }
    }

    /// The next leg that TCP has to tell of; `None`: there is none, for now.
    pub(super) fn next(&mut self, known: &Known<'_>, random: &mut dyn Rng) -> Option<Pair> {
        let (ages, ranges) = (known.age_s?, known.ranges?);
        self.asked.retain(|pair, before| {
            let is_old = ages.age_s(*pair).is_some_and(|now| now >= *before);
            is_old && !known.excluded.contains(*pair)
        });
        for _ in 0..LOOKED {
            let leg = self.told.pop_front()?;
            let age = ages.age_s(leg).filter(|age| *age >= AGAIN_S);
            let Some(age) = age.filter(|_| self.may(leg, known)) else { continue };
            if is_open(leg, known.graph, ranges, random) {
                self.asked.insert(leg, age);
                return Some(leg);
            }
        }
        None
    }

    fn may(&self, leg: Pair, known: &Known<'_>) -> bool {
        !self.asked.contains_key(&leg) && !known.excluded.contains(leg)
    }
}

/// Whether the leg is on a way whose order with another one its range leaves open.
fn is_open(leg: Pair, graph: &Graph, ranges: &dyn RangeOf, random: &mut dyn Rng) -> bool {
    if leg.0.max(leg.1) >= graph.nodes() || ranges.range(leg).is_none() {
        return false;
    }
    let (i, j) = leg;
    let on = graph.outs(j).map(|(to, _)| (i, to));
    let into = graph.ins(i).map(|(from, _)| (from, j));
    let around = on.chain(into).filter(|(from, to)| from != to).collect();
    let around = draw::distinct(around, PAIRS, random);
    [leg].into_iter().chain(around).any(|pair| is_open_for(leg, pair, graph, ranges))
}

/// The same of the ways between two nodes.
fn is_open_for(leg: Pair, pair: Pair, graph: &Graph, ranges: &dyn RangeOf) -> bool {
    let ways: Vec<Way> =
        ways(pair, graph).into_iter().map(|legs| Way::new(legs, graph, ranges)).collect();
    let links: Vec<Link> = ways.iter().map(Way::link).collect();
    let settings = OverlaySettings::default();
    let matters = |way: &Way| way.hangs_on(leg);
    let mut open = ways.iter().enumerate().filter(|(_, way)| matters(way));
    open.any(|(at, _)| hinges(at, &links, &settings))
}

/// The fastest ways between two nodes as they are planned with: the direct one, and by one relay.
fn ways((i, j): Pair, graph: &Graph) -> Vec<Vec<Pair>> {
    let direct = graph.rate(i, j).map(|rate| (rate, vec![(i, j)]));
    let detours = graph.detours(i, j).map(|(by, rate)| (rate, vec![(i, by), (by, j)]));
    let mut ways: Vec<_> = direct.into_iter().chain(detours).collect();
    ways.sort_by(|(one, _), (other, _)| other.cmp(one));
    ways.truncate(WAYS);
    ways.into_iter().map(|(_, legs)| legs).collect()
}

/// A way, and between what and what each of its legs is, bit/s.
#[derive(Debug)]
struct Way {
    legs: Vec<(Pair, (f64, f64))>,
    by_trains: bool,
}

impl Way {
    fn new(legs: Vec<Pair>, graph: &Graph, ranges: &dyn RangeOf) -> Self {
        let found: Vec<_> = legs.iter().map(|leg| ranges.range(*leg)).collect();
        let by_trains = found.iter().any(Option::is_some);
        let exact = |(i, j): Pair| graph.rate(i, j).map_or(0.0, |rate| rate.as_bps() as f64);
        let known = |leg: Pair, range: Option<(f64, f64)>| {
            range.unwrap_or_else(|| (exact(leg) * (1.0 - OFF), exact(leg) * (1.0 + OFF)))
        };
        let legs = legs.into_iter().zip(found).map(|(leg, range)| (leg, known(leg, range)));
        Self { legs: legs.collect(), by_trains }
    }

    /// As fast as its slowest leg; where that one's end is open, its own is.
    fn link(&self) -> Link {
        let ends = || self.legs.iter().map(|(_, range)| *range);
        let (low, open) = ends().min_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or_default();
        let high = ends().map(|(_, high)| high).fold(f64::INFINITY, f64::min);
        let (bound, high) = match open.is_finite() {
            true => (Bound::Exact, high),
            false => (Bound::AtLeast, low),
        };
        let how = if self.by_trains { How::Trains } else { How::Bulk };
        let known = overlay::Known { low, high, bound, how, age: Duration::ZERO };
        Link { known: Some(known), rivals: Some(0), ..Link::default() }
    }

    /// Whether this leg may be its slowest.
    fn hangs_on(&self, leg: Pair) -> bool {
        let Some((_, (low, _))) = self.legs.iter().find(|(other, _)| *other == leg) else {
            return false;
        };
        self.legs.iter().all(|(other, (_, high))| *other == leg || low < high)
    }
}
