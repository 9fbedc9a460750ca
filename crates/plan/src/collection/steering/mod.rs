//! The adaptive fluid plan: decides which ways each source uses now, corrected by their measured throughput. Rates are
//! not enforced: TCP divides the capacity (decision 0063).
//!
//! Ours; the paper plans once ("Such adaptation to changing network conditions is an ongoing effort", §III). A *way* is
//! a path of the overlay that is used cut-through: one TCP connection per leg, all at the same time, so that it is as
//! fast as its slowest leg.
//!
//! ```text
//! estimates ─ start: Problem::fluid ─► ways ─► bytes per way ─ observe ─► settled? ─┐
//!     ▲                                                                            │
//!     ├── legs: what they carry ◄── drift ──────────────────────────── judge trials ◄─┤
//!     ├── sets: legs that slow each other ◄── trials that brought nothing ────────────┘
//!     └── on drift replan: Problem::fluid of the rest with both ─► which ways are tried first
//!                          balance: sources that end last get ways, sources that end early give some up
//! ```
//!
//! Each way takes its source's next data whenever it can, and TCP shares the bottlenecks per connection. The steering
//! decides how many connections a source has, and where. So estimates are only needed for a good start; they may be
//! wrong or missing.

mod leg_estimates;
mod open_way;
#[cfg(test)]
mod tests;

pub use leg_estimates::SharedSet;
pub use open_way::{Opening, Way, WayId};

use super::{HostLimits, Problem, RatedPath};
use crate::Graph;
use leg_estimates::{LegEnds, LegEstimates, LegLoad};
use open_way::OpenWay;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The part of what a trial carries that must be new; otherwise it only takes it from other ways.
const WORTH: f64 = 0.3;

/// A source that ends within this part of the last source's time counts as last too.
const LAST: f64 = 0.95;
/// An end is late if it is this many times later than a full access link allows.
const LATE: f64 = 1.03;
/// An access link that carries this part of its capacity is full.
const FULL: f64 = 0.93;
/// A source does not need a way if, without it, it ends before this part of the last source's time.
const EARLY: f64 = 0.95;
/// Ends that differ by at most this factor count as equal.
const SAME: f64 = 1.005;
/// A way that replaces another must promise this many times as much.
const BETTER: f64 = 1.5;
/// A new way must promise this part of what the source has.
const LEAST: f64 = 0.05;

/// A graph with more legs is planned without shared sets. They need a linear program, which must end long before the
/// next interval.
const MOST_LEGS: usize = 300;

/// The maximum number of candidates of a source: all ways with two intermediates in a mesh of 60 members. The rest is
/// dropped.
const MOST: usize = 4_096;

/// What was measured since the last observation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Bytes by way; a way that is not listed moved none.
    pub bytes: BTreeMap<WayId, u64>,
    /// Bytes still to come, by participant.
    pub remaining: Vec<u64>,
    /// Ways that broke. They are closed, and tried again after a pause.
    pub broken: Vec<WayId>,
    /// Sources that are no longer reached on any way. Their ways are closed for good.
    pub lost: Vec<u32>,
}

/// Decides, interval by interval, which ways are open.
#[derive(Clone, Debug)]
pub struct Steering {
    settings: Settings,
    destination: u32,
    remaining: Vec<u64>,
    lost: Vec<bool>,
    relays: Vec<u32>,
    legs: LegEstimates,
    open: Vec<OpenWay>,
    benched: BTreeMap<Way, RestingWay>,
    /// Intervals so far.
    ticks: u64,
    /// Intervals since the last change.
    calm: u32,
    /// The id of the next way.
    next: u32,
    drifts: u32,
    /// Bytes/s by way in the last plan that was made on drift.
    planned: BTreeMap<Way, f64>,
    /// The number of those plans.
    plans: u32,
}

/// A way that is not tried for a while.
#[derive(Clone, Copy, Debug)]
struct RestingWay {
    /// The interval from which it may be tried again.
    until: u64,
    /// How often it was closed.
    times: u32,
    /// Its rate when it was last open, bytes/s.
    rate: f64,
}

impl Steering {
    /// Chooses the first ways.
    ///
    /// `remaining` is in bytes by participant; the destination's own is ignored. `estimates` has the same indices; legs
    /// may be missing and rates wrong. `relays` are the participants that forward others' data. A source that is not a
    /// relay is only asked directly, because relays do not connect to it.
    pub fn new(
        settings: Settings,
        destination: u32,
        remaining: &[u64],
        estimates: &Graph,
        relays: &BTreeSet<u32>,
    ) -> Self {
        let mut steering = Self {
            settings,
            destination,
            remaining: remaining.to_vec(),
            lost: vec![false; remaining.len()],
            relays: relays.iter().copied().filter(|host| *host != destination).collect(),
            legs: LegEstimates::new(remaining.len() as u32, destination, estimates),
            open: Vec::new(),
            benched: BTreeMap::new(),
            ticks: 0,
            calm: 0,
            next: 0,
            drifts: 0,
            planned: BTreeMap::new(),
            plans: 0,
        };
        if let Some(own) = steering.remaining.get_mut(destination as usize) {
            *own = 0;
        }
        steering.start();
        steering
    }

    /// The ways that should be open now; the weights of a source sum to 1.
    pub fn open(&self) -> Vec<Opening> {
        self.open.iter().map(|open| self.opening(open)).collect()
    }

    /// Takes what was measured in `elapsed` and updates the ways, which [`open`](Self::open) returns.
    pub fn observe(&mut self, elapsed: Duration, seen: &Observation) {
        let seconds = elapsed.as_secs_f64().max(1e-3);
        self.ticks += 1;
        self.calm += 1;
        self.take(seconds, seen);
        self.close_broken(seen);
        self.close_finished();
        if self.calm >= self.settings.samples {
            let judged = self.judge();
            if self.learn_drift() && self.settings.replan {
                self.replan();
            }
            let balanced = self.balance();
            if judged || balanced {
                self.calm = 0;
            }
        }
        self.keep_reachable();
    }

    /// The time until all data has arrived if the ways stay; `None` if a source gets nothing yet.
    pub fn ends_in(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.forecast(None).last()).ok()
    }

    /// Sets of legs that were seen to slow each other.
    pub fn shared_sets(&self) -> &[SharedSet] {
        self.legs.learnt()
    }

    /// The estimate of what a leg carries now, bytes/s; `None` if nothing is known of it.
    pub fn leg(&self, from: u32, to: u32) -> Option<f64> {
        self.legs.known((from, to))
    }

    /// How often realised rates differed from the planned ones for long enough.
    pub fn drifts(&self) -> u32 {
        self.drifts
    }

    /// How often the rest was planned anew.
    pub fn plans(&self) -> u32 {
        self.plans
    }

    fn take(&mut self, seconds: f64, seen: &Observation) {
        for (at, bytes) in seen.remaining.iter().enumerate() {
            if at != self.destination as usize && at < self.remaining.len() {
                self.remaining[at] = *bytes;
            }
        }
        for open in &mut self.open {
            let bytes = seen.bytes.get(&open.id).copied().unwrap_or(0);
            open.take(bytes as f64 / seconds, self.settings.samples);
        }
        let is_full = self.is_full();
        self.open.iter_mut().for_each(|open| open.take_alone(is_full));
        seen.lost.iter().for_each(|source| {
            if let Some(lost) = self.lost.get_mut(*source as usize) {
                *lost = true;
            }
        });
    }

    fn close_broken(&mut self, seen: &Observation) {
        for id in &seen.broken {
            if self.open.iter().any(|open| open.id == *id) {
                self.close(*id);
                self.calm = 0;
            }
        }
    }

    fn close_finished(&mut self) {
        let (remaining, lost) = (&self.remaining, &self.lost);
        let waits = |open: &OpenWay| {
            let source = open.way.source as usize;
            remaining[source] > 0 && !lost[source]
        };
        let before = self.open.len();
        self.open.retain(waits);
        if self.open.len() < before {
            self.calm = 0;
        }
    }

    /// Closes a way and benches it, longer each time.
    fn close(&mut self, id: WayId) {
        let Some(at) = self.open.iter().position(|open| open.id == id) else { return };
        let open = self.open.remove(at);
        let times = self.benched.get(&open.way).map_or(0, |benched| benched.times) + 1;
        let pause = u64::from(self.settings.pause) << times.min(6);
        let benched = RestingWay { until: self.ticks + pause, times, rate: open.rate() };
        self.benched.insert(open.way, benched);
    }

    fn add(&mut self, way: Way, trial: bool) {
        let before = self.open.iter().map(|open| (open.id, open.rate())).collect();
        let legs = way.legs(self.destination).into_iter();
        let alone = legs.map(|leg| self.legs.rate(leg)).fold(f64::INFINITY, f64::min);
        let expected = (self.expected(&way), alone);
        let id = WayId(self.next);
        self.next += 1;
        self.open.push(OpenWay::new(id, way, expected, trial.then_some(before)));
    }

    fn is_waiting(&self, source: u32) -> bool {
        self.remaining[source as usize] > 0 && !self.lost[source as usize]
    }

    fn open_of(&self, source: u32) -> impl Iterator<Item = &OpenWay> {
        self.open.iter().filter(move |open| open.way.source == source)
    }

    /// The rate that a source gets now, bytes/s.
    fn rate(&self, source: u32) -> f64 {
        self.open_of(source).map(OpenWay::rate).sum()
    }

    fn opening(&self, open: &OpenWay) -> Opening {
        let all: f64 = self.open_of(open.way.source).map(OpenWay::weight).sum();
        let count = self.open_of(open.way.source).count() as f64;
        let weight = if all > 0.0 { open.weight() / all } else { 1.0 / count };
        Opening { id: open.id, way: open.way.clone(), weight, expected: open.weight() }
    }
}

/// The first ways: those of the fluid plan on the estimates.
impl Steering {
    /// Opens the planned ways of each source, the widest first; the direct way if no planned one is short enough.
    fn start(&mut self) {
        let mut paths = self.plan();
        paths.sort_by(|a, b| b.per_slot.total_cmp(&a.per_slot));
        for source in 0..self.remaining.len() as u32 {
            let own = paths.iter().filter(|path| path.source == source);
            let ways = own.filter_map(|path| self.way(path));
            let ways: Vec<Way> = ways.take(self.settings.ways.max(1)).collect();
            ways.into_iter().for_each(|way| self.add(way, false));
            if self.is_waiting(source) && self.open_of(source).next().is_none() {
                self.add(Way { source, via: Vec::new() }, false);
            }
        }
    }

    fn way(&self, path: &RatedPath) -> Option<Way> {
        let (_, via) = path.via.split_last()?;
        let is_short = via.len() <= self.settings.intermediates;
        is_short.then(|| Way { source: path.source, via: via.to_vec() })
    }

    /// The fluid plan of what remains with the current estimates: units are bytes, slots are seconds. Empty if there is
    /// no plan.
    fn plan(&self) -> Vec<RatedPath> {
        let leg = |((from, to), rate): ((u32, u32), f64)| crate::collection::Leg {
            from,
            to,
            per_slot: rate as u64,
        };
        let goes_on = |to: u32| to == self.destination || self.relays.contains(&to);
        let known = self.legs.all().filter(|((from, to), _)| {
            goes_on(*to) && (*to == self.destination || self.relays.contains(from))
        });
        let mut legs: Vec<crate::collection::Leg> = known.map(leg).collect();
        // A source whose direct leg is not measured can be asked directly all the same.
        let unknown = (0..self.remaining.len() as u32)
            .map(|source| (source, self.destination))
            .filter(|direct| self.is_waiting(direct.0) && self.legs.known(*direct).is_none());
        legs.extend(unknown.map(|direct| leg((direct, self.legs.rate(direct)))));
        let Ok(mut problem) = Problem::collect(&self.remaining, self.destination, &legs) else {
            return Vec::new();
        };
        for host in 0..self.remaining.len() as u32 {
            let (into, out) = self.legs.host_limits(host);
            let limit = |rate: f64| rate.is_finite().then_some(rate as u64);
            let limits = HostLimits { ingress: limit(into), egress: limit(out), storage: None };
            problem = problem.with_limits(host, limits);
        }
        if legs.len() <= MOST_LEGS {
            for set in self.legs.learnt() {
                let inside: Vec<(u32, u32)> = set.legs.iter().copied().collect();
                problem = problem.with_shared(&inside, set.limit as u64);
            }
        }
        problem.fluid().map(|fluid| fluid.paths).unwrap_or_default()
    }

    /// All ways of a source that may be opened.
    fn candidates(&self, source: u32) -> Vec<Way> {
        candidates(source, &self.relays, self.settings.intermediates)
    }
}

/// Learns from measured rates: about trials, legs and sets.
impl Steering {
    /// Ends the trials that are settled. Returns whether any way was closed.
    fn judge(&mut self) -> bool {
        let settled =
            |open: &&OpenWay| open.trial.is_some() && open.seen() >= self.settings.samples;
        let due: Vec<WayId> = self.open.iter().filter(settled).map(|open| open.id).collect();
        let gain = self.gain(&due);
        if gain < WORTH {
            let all = self.open.iter().map(OpenWay::rate).sum();
            self.legs.limit_into(self.destination, all);
        }
        let mut changed = false;
        for id in due {
            changed |= self.judge_one(id, gain);
        }
        changed
    }

    /// The part of what the ways in `due` carry that is not taken from other ways, of whatever source.
    fn gain(&self, due: &[WayId]) -> f64 {
        let is_due = |open: &OpenWay| due.contains(&open.id);
        let first = self.open.iter().find_map(|open| open.trial.as_ref().filter(|_| is_due(open)));
        let Some(before) = first else { return 1.0 };
        let carried: f64 = self.open.iter().filter(|open| is_due(open)).map(OpenWay::rate).sum();
        let taken = |open: &OpenWay| before.get(&open.id).map_or(0.0, |was| was - open.rate());
        let taken: f64 = self.open.iter().filter(|open| !is_due(open)).map(taken).sum();
        1.0 - taken.max(0.0) / carried.max(1e-9)
    }

    /// Judges a trial. It is worth its connection if all ways together became faster by it, or if its source ends last
    /// and gets more now, even from other sources, provided that these do not lose much more than it gains. Returns
    /// whether the way was closed.
    fn judge_one(&mut self, id: WayId, gain: f64) -> bool {
        let Some(at) = self.open.iter().position(|open| open.id == id) else { return false };
        let Some(before) = self.open[at].trial.take() else { return false };
        let source = self.open[at].way.source;
        let carried = self.open[at].rate();
        self.learn_set(id, &before);
        let siblings = || self.open_of(source).filter(|open| open.id != id);
        let taken = |open: &OpenWay| before.get(&open.id).map_or(0.0, |was| was - open.rate());
        let own = 1.0 - siblings().map(taken).sum::<f64>().max(0.0) / carried.max(1e-9);
        let forecast = self.forecast(None);
        let late = forecast.last() > LATE * self.floor()
            && forecast.ends[source as usize] >= LAST * forecast.last();
        let much = carried >= 0.03 * self.rate(source);
        let is_worth = much && own >= WORTH && (gain >= WORTH || late && gain >= -WORTH);
        if is_worth || self.open_of(source).count() <= 1 {
            return false;
        }
        self.close(id);
        true
    }

    /// If other ways slowed by at least half of what the new way carries, they share a bottleneck with it: learns the
    /// set.
    fn learn_set(&mut self, id: WayId, before: &BTreeMap<WayId, f64>) {
        let lost = |open: &&OpenWay| {
            let was = before.get(&open.id).copied().unwrap_or(0.0);
            open.id != id && open.rate() < (1.0 - self.settings.drift) * was
        };
        let slowed: Vec<&OpenWay> = self.open.iter().filter(lost).collect();
        let Some(new) = self.open.iter().find(|open| open.id == id) else { return };
        let taken: f64 = slowed
            .iter()
            .map(|open| before.get(&open.id).copied().unwrap_or(0.0) - open.rate())
            .sum();
        if slowed.is_empty() || taken < 0.5 * new.rate() {
            return;
        }
        let together: Vec<&OpenWay> = slowed.into_iter().chain([new]).collect();
        let limit = together.iter().map(|open| open.rate()).sum();
        let legs: BTreeSet<LegEnds> =
            together.iter().filter_map(|open| self.narrowest(open)).collect();
        if legs.len() > 1 {
            self.legs.learn(legs, limit);
        }
    }

    /// The leg of a way with the lowest estimate.
    fn narrowest(&self, open: &OpenWay) -> Option<LegEnds> {
        let legs = open.way.legs(self.destination).into_iter();
        legs.min_by(|a, b| self.legs.rate(*a).total_cmp(&self.legs.rate(*b)))
    }

    /// Compares realised rates with planned ones and corrects the estimates of the legs. Returns whether any way
    /// differed from its plan.
    fn learn_drift(&mut self) -> bool {
        let before = self.drifts;
        let used = self.used();
        for (leg, load) in &used.loads {
            self.legs.raise(*leg, *load);
        }
        self.legs.raise_sets(&used.loads);
        for at in 0..self.open.len() {
            let open = &self.open[at];
            if open.seen() < self.settings.samples {
                continue;
            }
            let (rate, expected) = (open.rate(), open.expected);
            let away = (rate - expected).abs() > self.settings.drift * expected;
            if !away {
                continue;
            }
            self.drifts += 1;
            let leg = self.narrowest(open);
            if let Some(leg) = leg.filter(|_| rate < expected) {
                self.legs.lower(leg, used.load(leg));
            }
            self.open[at].expected = rate;
        }
        self.drifts > before
    }
}

/// Balances the sources: those that end last get ways, those that end early give some up.
impl Steering {
    /// Opens and closes ways. Returns whether anything changed.
    fn balance(&mut self) -> bool {
        let forecast = self.forecast(None);
        let last = forecast.last();
        // If everything ends before a trial would, no trial is needed.
        let round = self.settings.interval.as_secs_f64() * f64::from(self.settings.samples);
        if last < 2.0 * round {
            return false;
        }
        let is_late = last > LATE * self.floor();
        let sources = (0..self.remaining.len() as u32).filter(|source| self.is_waiting(*source));
        let mut changed = false;
        for source in sources.collect::<Vec<u32>>() {
            let is_last = forecast.ends[source as usize] >= LAST * last;
            changed |=
                if is_late && is_last { self.widen(source) } else { self.narrow(source, last) };
        }
        changed
    }

    /// Whether the destination's access link carries what it is known to carry.
    fn is_full(&self) -> bool {
        let (into, _) = self.legs.host_limits(self.destination);
        self.open.iter().map(OpenWay::rate).sum::<f64>() >= FULL * into
    }

    /// Tries one more way, or another in place of the slowest. Returns whether it did.
    fn widen(&mut self, source: u32) -> bool {
        if self.open_of(source).any(|open| open.trial.is_some()) {
            return false;
        }
        let next = self.next_planned(source).or_else(|| self.best_untried(source));
        let Some((way, expected)) = next else { return false };
        let count = self.open_of(source).count();
        if count < self.settings.ways.max(1) {
            if count > 0 && expected < LEAST * self.rate(source) {
                return false;
            }
            self.add(way, true);
            return true;
        }
        let slowest = self.slowest(source).filter(|open| expected > BETTER * open.rate());
        let Some(id) = slowest.map(|open| open.id) else { return false };
        self.close(id);
        self.add(way, true);
        true
    }

    /// Closes the way that carries least if everything ends as soon without it. Returns whether it did.
    fn narrow(&mut self, source: u32, last: f64) -> bool {
        let Some(slowest) = self.slowest(source) else { return false };
        let (id, is_settled) = (slowest.id, slowest.seen() >= self.settings.samples);
        if self.open_of(source).count() < 2 || !is_settled {
            return false;
        }
        let without = self.forecast(Some(id));
        let goes = without.last() <= SAME * last && without.ends[source as usize] <= EARLY * last;
        if goes {
            self.close(id);
        }
        goes
    }

    /// Ensures that each source with data has at least one way: the best that is not benched, or else the one whose
    /// pause ends first.
    fn keep_reachable(&mut self) {
        for source in 0..self.remaining.len() as u32 {
            if !self.is_waiting(source) || self.open_of(source).next().is_some() {
                continue;
            }
            let untried = self.best_untried(source).map(|(way, _)| way);
            let next = untried.or_else(|| {
                let benched = self.benched.iter().filter(|(way, _)| way.source == source);
                benched.min_by_key(|(_, b)| b.until).map(|(way, _)| way.clone())
            });
            if let Some(way) = next {
                self.add(way, false);
                self.calm = 0;
            }
        }
    }
}

/// Plans the rest anew when rates differ from the plan.
impl Steering {
    /// Solves the fluid plan of the rest, with the corrected legs and the learnt sets. Sources that end last try its
    /// ways before any others. No other way is closed for it, because a way that carries something is better known than
    /// a planned one. If there is no plan, the old one stays.
    fn replan(&mut self) {
        let mut planned: BTreeMap<Way, f64> = BTreeMap::new();
        for path in self.plan() {
            if let Some(way) = self.way(&path) {
                *planned.entry(way).or_default() += path.per_slot;
            }
        }
        if !planned.is_empty() {
            self.planned = planned;
            self.plans += 1;
        }
    }

    /// The way of the last plan that a source should try next, with its rate. It is neither open nor benched, and if it
    /// has to replace a way, it promises clearly more than that.
    fn next_planned(&self, source: u32) -> Option<(Way, f64)> {
        let own = self.planned.iter().filter(|(way, _)| way.source == source);
        let free = own.filter(|(way, _)| self.may_open(way));
        let (way, rate) = free.max_by(|a, b| a.1.total_cmp(b.1))?;
        let is_full = self.open_of(source).count() >= self.settings.ways.max(1);
        let slowest = self.slowest(source).map_or(0.0, |open| open.rate());
        (!is_full || *rate > BETTER * slowest).then(|| (way.clone(), *rate))
    }
}

/// Chooses the way that a source tries next.
impl Steering {
    /// The load that the open ways put on the legs.
    fn used(&self) -> LegLoad {
        let mut used = LegLoad::default();
        for open in &self.open {
            for leg in open.way.legs(self.destination) {
                used.put(leg, open.weight());
            }
        }
        used
    }

    /// The rate that a way would get if it were opened now, bytes/s.
    fn expected(&self, way: &Way) -> f64 {
        self.expected_with(way, &self.used())
    }

    fn expected_with(&self, way: &Way, used: &LegLoad) -> f64 {
        let legs = way.legs(self.destination);
        legs.into_iter().map(|leg| self.legs.room(leg, used)).fold(f64::INFINITY, f64::min)
    }

    /// The way with the highest expected rate among those that are neither open nor benched; among near ties the one
    /// with fewer intermediates. A way that was open before is expected to carry no more than it did then.
    fn best_untried(&self, source: u32) -> Option<(Way, f64)> {
        let used = self.used();
        let free = self.candidates(source).into_iter().filter(|way| self.may_open(way));
        let rated = free.map(|way| {
            let expected = self.expected_with(&way, &used);
            let seen = self.benched.get(&way).map_or(expected, |b| b.rate.min(expected));
            (way, seen)
        });
        // A way that is less than a tenth better does not count as better: the shorter, earlier one stays.
        rated.fold(None, |best, next| match best {
            Some((_, rate)) if next.1 <= rate * 1.1 => best,
            _ => Some(next),
        })
    }

    /// Whether the way is neither open nor benched.
    fn may_open(&self, way: &Way) -> bool {
        let is_open = self.open_of(way.source).any(|open| open.way == *way);
        !is_open && self.benched.get(way).is_none_or(|benched| benched.until <= self.ticks)
    }

    /// The way of a source that carries least.
    fn slowest(&self, source: u32) -> Option<&OpenWay> {
        self.open_of(source).min_by(|a, b| a.rate().total_cmp(&b.rate()))
    }
}

/// Forecasts when each source ends if the open ways stay.
///
/// Ways share the destination's access as TCP does: equally, except for those that something else slows. A source that
/// is done leaves its share to the others. So a source that is slow now may still be in time, and sources do not
/// compete for an access that is full anyway.
impl Steering {
    /// The ends if the way `without` were closed now.
    fn forecast(&self, without: Option<WayId>) -> Forecast {
        let (into, _) = self.legs.host_limits(self.destination);
        let open = self.open.iter().filter(|open| Some(open.id) != without);
        let mut ways: Vec<(u32, f64)> = open.map(|open| (open.way.source, open.alone)).collect();
        let mut left: Vec<f64> = self.remaining.iter().map(|bytes| *bytes as f64).collect();
        let mut ends: Vec<f64> =
            left.iter().map(|left| if *left > 0.0 { f64::INFINITY } else { 0.0 }).collect();
        for (source, lost) in self.lost.iter().enumerate().filter(|(_, lost)| **lost) {
            ends[source] = if *lost { 0.0 } else { ends[source] };
        }
        let mut now = 0.0;
        while !ways.is_empty() {
            let rates = shares(&ways, into, left.len());
            let next = ways.iter().map(|way| way.0 as usize);
            let end = |source: usize| left[source] / rates[source].max(1e-9);
            let Some(first) = next.min_by(|a, b| end(*a).total_cmp(&end(*b))) else { break };
            let pass = end(first);
            now += pass;
            left.iter_mut().zip(&rates).for_each(|(left, rate)| *left -= rate * pass);
            ends[first] = now;
            ways.retain(|way| way.0 as usize != first);
        }
        Forecast { ends }
    }

    /// The earliest end by any ways, s: the destination's access is full all the time.
    fn floor(&self) -> f64 {
        let (into, _) = self.legs.host_limits(self.destination);
        let waiting = (0..self.remaining.len() as u32).filter(|source| self.is_waiting(*source));
        waiting.map(|source| self.remaining[source as usize] as f64).sum::<f64>() / into
    }
}

/// When each source ends, s from now.
#[derive(Clone, Debug, PartialEq)]
struct Forecast {
    /// By participant; 0 if there is nothing to wait for, infinite if it never ends.
    ends: Vec<f64>,
}

impl Forecast {
    /// When the last source ends, s.
    fn last(&self) -> f64 {
        self.ends.iter().copied().fold(0.0, f64::max)
    }
}

/// The sources' rates if ways share an access max-min fair, each way limited to what it carries alone.
fn shares(ways: &[(u32, f64)], access: f64, sources: usize) -> Vec<f64> {
    let mut rates = vec![0.0; sources];
    let mut sorted: Vec<&(u32, f64)> = ways.iter().collect();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (mut left, mut count) = (access, sorted.len() as f64);
    for (source, alone) in sorted {
        let rate = alone.min(left / count);
        rates[*source as usize] += rate;
        left -= rate;
        count -= 1.0;
    }
    rates
}

/// All ways with at most `longest` intermediates, shorter ones first. At most [`MOST`].
fn candidates(source: u32, relays: &[u32], longest: usize) -> Vec<Way> {
    let longest = if relays.contains(&source) { longest } else { 0 };
    let others: Vec<u32> = relays.iter().copied().filter(|node| *node != source).collect();
    let mut ways = vec![Way { source, via: Vec::new() }];
    let mut last = ways.clone();
    for _ in 0..longest {
        let longer = |way: &Way| {
            let free = others.iter().filter(|node| !way.via.contains(node));
            let with = |node: &u32| {
                let via = way.via.iter().copied().chain([*node]).collect();
                Way { source, via }
            };
            free.map(with).collect::<Vec<Way>>()
        };
        last = last.iter().flat_map(longer).take(MOST).collect();
        ways.extend(last.iter().cloned());
    }
    ways.truncate(MOST);
    ways
}

/// Limits and times of the steering.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The most ways of a source that are open at a time, at least 1. Each is a connection of its own on shared
    /// bottlenecks, so more of them take more from others' traffic. Beyond this, a better way replaces the slowest.
    pub ways: usize,
    /// The most intermediates of a way.
    pub intermediates: usize,
    /// The time between observations.
    pub interval: Duration,
    /// Rates that differ from the planned ones by more than this fraction are drift.
    pub drift: f64,
    /// The number of intervals in a row after which a rate is believed.
    pub samples: u32,
    /// A way that was closed is not tried again for twice this number of intervals. Each further time the pause
    /// doubles, up to 64 times this number.
    pub pause: u32,
    /// Whether the rest is planned anew on drift; otherwise ways are only tried one by one.
    pub replan: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ways: 4,
            intermediates: 2,
            interval: Duration::from_secs(2),
            drift: 0.25,
            samples: 3,
            pause: 15,
            replan: true,
        }
    }
}
