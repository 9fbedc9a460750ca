//! Finds legs that TCP must measure because trains leave open which of two ways is better.

use super::{LegRanges, Pair, ScheduleInput};
use crate::{Graph, draw};
use rand_core::Rng;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use thalweg_measure::{
    Bound,
    overlay::{self, Link, LinkMethod, OverlaySettings, hinges},
};

/// The maximum number of legs that wait to be examined. Beyond it the oldest is dropped; its next range brings it back.
const MOST: usize = 1024;

/// The number of legs that are examined in a turn.
const LOOKED: usize = 4;
/// The number of pairs that are examined for a leg, O(d) each.
const PAIRS: usize = 16;

/// The number of ways to one destination that are compared, the fastest first: more than the two that may be the best,
/// because ranges can change their order.
const WAYS: usize = 4;

/// The relative error of what TCP reached, nine times of ten (experiments/reports/mgrp.md).
const OFF: f64 = 0.1;

/// No leg is asked for within this time of its last measurement, s, because a range counts for so long.
const AGAIN_S: f64 = thalweg_measure::MAX_SPARE_AGE.as_secs() as f64;

/// Finds legs whose ranges by trains leave open which of the two best ways between two nodes is better: UKAIRO's table
/// has one value of a leg, MGRP's overlay a range (§3.2).
///
/// Needs [`ScheduleInput::ranges`] and [`ScheduleInput::age_s`], and finds nothing without them.
#[derive(Clone, Debug, Default)]
pub(super) struct DecisiveLegs {
    /// Legs on which trains have reported, the oldest first.
    reported: VecDeque<Pair>,
    /// Legs that were asked for, with their ages at that time, s.
    asked: BTreeMap<Pair, f64>,
}

impl DecisiveLegs {
    /// Records that trains have reported on this leg.
    pub(super) fn reported(&mut self, pair: Pair) {
        if !self.reported.contains(&pair) {
            self.reported.push_back(pair);
        }
        if self.reported.len() > MOST {
            self.reported.pop_front();
        }
    }

    /// The next leg that TCP must measure; `None` if there is none for now.
    pub(super) fn next(&mut self, known: &ScheduleInput<'_>, random: &mut dyn Rng) -> Option<Pair> {
        let (ages, ranges) = (known.age_s?, known.ranges?);
        self.asked.retain(|pair, before| {
            let is_old = ages.age_s(*pair).is_some_and(|now| now >= *before);
            is_old && !known.excluded.contains(*pair)
        });
        for _ in 0..LOOKED {
            let leg = self.reported.pop_front()?;
            let age = ages.age_s(leg).filter(|age| *age >= AGAIN_S);
            let Some(age) = age.filter(|_| self.may(leg, known)) else { continue };
            if is_open(leg, known.graph, ranges, random) {
                self.asked.insert(leg, age);
                return Some(leg);
            }
        }
        None
    }

    fn may(&self, leg: Pair, known: &ScheduleInput<'_>) -> bool {
        !self.asked.contains_key(&leg) && !known.excluded.contains(leg)
    }
}

/// Whether the leg is on a way whose order with another one the leg's range leaves open.
fn is_open(leg: Pair, graph: &Graph, ranges: &dyn LegRanges, random: &mut dyn Rng) -> bool {
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

/// The same, only for the ways between two nodes.
fn is_open_for(leg: Pair, pair: Pair, graph: &Graph, ranges: &dyn LegRanges) -> bool {
    let ways: Vec<RangedWay> =
        ways(pair, graph).into_iter().map(|legs| RangedWay::new(legs, graph, ranges)).collect();
    let links: Vec<Link> = ways.iter().map(RangedWay::link).collect();
    let settings = OverlaySettings::default();
    let matters = |way: &RangedWay| way.hangs_on(leg);
    let mut open = ways.iter().enumerate().filter(|(_, way)| matters(way));
    open.any(|(at, _)| hinges(at, &links, &settings))
}

/// The fastest ways between two nodes, as planned: the direct one, and those by one relay.
fn ways((i, j): Pair, graph: &Graph) -> Vec<Vec<Pair>> {
    let direct = graph.rate(i, j).map(|rate| (rate, vec![(i, j)]));
    let detours = graph.detours(i, j).map(|(by, rate)| (rate, vec![(i, by), (by, j)]));
    let mut ways: Vec<_> = direct.into_iter().chain(detours).collect();
    ways.sort_by(|(one, _), (other, _)| other.cmp(one));
    ways.truncate(WAYS);
    ways.into_iter().map(|(_, legs)| legs).collect()
}

/// A way with the range of each of its legs, bit/s.
#[derive(Debug)]
struct RangedWay {
    legs: Vec<(Pair, (f64, f64))>,
    /// Whether trains have found the range of any leg.
    by_trains: bool,
}

impl RangedWay {
    fn new(legs: Vec<Pair>, graph: &Graph, ranges: &dyn LegRanges) -> Self {
        let found: Vec<_> = legs.iter().map(|leg| ranges.range(*leg)).collect();
        let by_trains = found.iter().any(Option::is_some);
        let exact = |(i, j): Pair| graph.rate(i, j).map_or(0.0, |rate| rate.as_bps() as f64);
        let known = |leg: Pair, range: Option<(f64, f64)>| {
            range.unwrap_or_else(|| (exact(leg) * (1.0 - OFF), exact(leg) * (1.0 + OFF)))
        };
        let legs = legs.into_iter().zip(found).map(|(leg, range)| (leg, known(leg, range)));
        Self { legs: legs.collect(), by_trains }
    }

    /// The way as a link: as fast as its slowest leg. If the upper end of that leg's range is open, so is the way's.
    fn link(&self) -> Link {
        let ends = || self.legs.iter().map(|(_, range)| *range);
        let (low, open) = ends().min_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or_default();
        let high = ends().map(|(_, high)| high).fold(f64::INFINITY, f64::min);
        let (bound, high) = match open.is_finite() {
            true => (Bound::Exact, high),
            false => (Bound::AtLeast, low),
        };
        let how = if self.by_trains { LinkMethod::Trains } else { LinkMethod::Bulk };
        let known = overlay::LinkEstimate { low, high, bound, how, age: Duration::ZERO };
        Link { known: Some(known), rivals: Some(0), ..Link::default() }
    }

    /// Whether this leg may be the way's slowest.
    fn hangs_on(&self, leg: Pair) -> bool {
        let Some((_, (low, _))) = self.legs.iter().find(|(other, _)| *other == leg) else {
            return false;
        };
        self.legs.iter().all(|(other, (_, high))| *other == leg || low < high)
    }
}
