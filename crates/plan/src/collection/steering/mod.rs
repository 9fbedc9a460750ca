//! The adaptive fluid plan: which ways each source uses now, corrected by their measured throughput.
//! Rates are not enforced: TCP divides the capacity (decision 0063).
//!
//! Ours; the paper plans once ("Such adaptation to changing network conditions is an ongoing
//! effort", §III). A *way* is a path of the overlay that is used cut-through: one TCP connection per
//! leg, all at the same time, so that it is as fast as its slowest leg.
//!
//! ```text
//! estimates ─ start: Problem::fluid ─► ways ─► bytes per way ─ observe ─► settled? ─┐
//!     ▲                                                                            │
//!     ├── legs: what they carry ◄── drift ──────────────────────────── judge trials ◄─┤
//!     ├── sets: legs that slow each other ◄── trials that brought nothing ────────────┘
//!     └── on drift replan: Problem::fluid of the rest with both ─► which ways are tried first
//!                          balance: who ends last gets ways, who ends early gives them up
//! ```
//!
//! Rates are not enforced: a way takes its source's next data whenever it can, and TCP shares the
//! bottlenecks per connection. What is steered is how many connections a source has, and where. So
//! estimates are only needed to begin well; they may be wrong, or missing.

mod legs;
mod open;
#[cfg(test)]
mod tests;

pub use legs::SharedSet;
pub use open::{Opening, Way, WayId};

use super::{Limits, Problem, RatedPath};
use crate::Graph;
use legs::{Leg, Legs, Used};
use open::Open;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A trial that adds less than this part of what it carries only takes it from its siblings.
const WORTH: f64 = 0.3;

/// Whoever ends within this part of the last one's time ends last as well.
const LAST: f64 = 0.95;
/// So many times later than a full access allows is late.
const LATE: f64 = 1.03;
/// An access that carries this part of what it can is full.
const FULL: f64 = 0.93;
/// Whoever would end before this part of the last one's time without a way does not need it.
const EARLY: f64 = 0.95;
/// Ends that differ by no more are the same.
const SAME: f64 = 1.005;
/// A way that is to take another's place must promise so many times as much.
const BETTER: f64 = 1.5;
/// A way must promise this part of what the source has.
const LEAST: f64 = 0.05;

/// A graph with more legs is planned without sets of them: that is a linear program, and it must be over
/// long before the next interval.
const MOST_LEGS: usize = 300;

/// No more are looked at: in a mesh of 60 members all ways with two intermediates. The rest is
/// dropped.
const MOST: usize = 4_096;

/// What passed since the last observation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Bytes by way; a way that is not named moved none.
    pub bytes: BTreeMap<WayId, u64>,
    /// Bytes still to come, by participant.
    pub remaining: Vec<u64>,
    /// Ways that broke; they are left, and tried again after a pause.
    pub broken: Vec<WayId>,
    /// Sources that are not reached any more, on no way: their ways are closed for good.
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
    legs: Legs,
    open: Vec<Open>,
    benched: BTreeMap<Way, Benched>,
    /// Intervals so far, and since the last change.
    ticks: u64,
    calm: u32,
    next: u32,
    drifts: u32,
    /// Bytes/s by way of the last plan made on drift, and how many there were.
    planned: BTreeMap<Way, f64>,
    plans: u32,
}

/// A way that is not to be tried for a while.
#[derive(Clone, Copy, Debug)]
struct Benched {
    until: u64,
    times: u32,
    /// What it carried when it was last open, bytes/s.
    rate: f64,
}

impl Steering {
    /// Chooses the first ways.
    ///
    /// `remaining` is by participant, the destination's is passed over. `estimates` are of the same
    /// indices; legs may be missing and rates wrong. `relays` are those who pass on others' data; a
    /// source that is none of them is only asked directly, as relays do not connect to it.
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
            legs: Legs::new(remaining.len() as u32, destination, estimates),
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

    /// The ways that are to be open now, by their names; weights of a source sum to 1.
    pub fn open(&self) -> Vec<Opening> {
        self.open.iter().map(|open| self.opening(open)).collect()
    }

    /// Takes what passed in `elapsed`; [`open`](Self::open) is the answer.
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

    /// When everything is there if the ways stay; `None`: a source gets nothing yet.
    pub fn ends_in(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.forecast(None).last()).ok()
    }

    /// Sets of legs that were seen to slow each other.
    pub fn shared_sets(&self) -> &[SharedSet] {
        self.legs.learnt()
    }

    /// What a leg is taken to carry now, bytes/s; `None`: nothing is known of it.
    pub fn leg(&self, from: u32, to: u32) -> Option<f64> {
        self.legs.known((from, to))
    }

    /// How often realised rates were away from the planned ones for long enough.
    pub fn drifts(&self) -> u32 {
        self.drifts
    }

    /// How often what was left was planned anew.
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
        let waits = |open: &Open| {
            let source = open.way.source as usize;
            remaining[source] > 0 && !lost[source]
        };
        let before = self.open.len();
        self.open.retain(waits);
        if self.open.len() < before {
            self.calm = 0;
        }
    }

    /// Leaves a way, and benches it, longer each time.
    fn close(&mut self, id: WayId) {
        let Some(at) = self.open.iter().position(|open| open.id == id) else { return };
        let open = self.open.remove(at);
        let times = self.benched.get(&open.way).map_or(0, |benched| benched.times) + 1;
        let pause = u64::from(self.settings.pause) << times.min(6);
        let benched = Benched { until: self.ticks + pause, times, rate: open.rate() };
        self.benched.insert(open.way, benched);
    }

    fn add(&mut self, way: Way, trial: bool) {
        let before = self.open.iter().map(|open| (open.id, open.rate())).collect();
        let legs = way.legs(self.destination).into_iter();
        let alone = legs.map(|leg| self.legs.rate(leg)).fold(f64::INFINITY, f64::min);
        let expected = (self.expected(&way), alone);
        let id = WayId(self.next);
        self.next += 1;
        self.open.push(Open::new(id, way, expected, trial.then_some(before)));
    }

    fn is_waiting(&self, source: u32) -> bool {
        self.remaining[source as usize] > 0 && !self.lost[source as usize]
    }

    fn of(&self, source: u32) -> impl Iterator<Item = &Open> {
        self.open.iter().filter(move |open| open.way.source == source)
    }

    /// What a source gets now, bytes/s.
    fn rate(&self, source: u32) -> f64 {
        self.of(source).map(Open::rate).sum()
    }

    fn opening(&self, open: &Open) -> Opening {
        let all: f64 = self.of(open.way.source).map(Open::weight).sum();
        let count = self.of(open.way.source).count() as f64;
        let weight = if all > 0.0 { open.weight() / all } else { 1.0 / count };
        Opening { id: open.id, way: open.way.clone(), weight, expected: open.weight() }
    }
}

/// The first ways: those of the fluid plan on the estimates.
impl Steering {
    /// The planned ways of each source, the widest first; where none is short enough, the direct one.
    fn start(&mut self) {
        let mut paths = self.plan();
        paths.sort_by(|a, b| b.per_slot.total_cmp(&a.per_slot));
        for source in 0..self.remaining.len() as u32 {
            let own = paths.iter().filter(|path| path.source == source);
            let ways = own.filter_map(|path| self.way(path));
            let ways: Vec<Way> = ways.take(self.settings.ways.max(1)).collect();
            ways.into_iter().for_each(|way| self.add(way, false));
            if self.is_waiting(source) && self.of(source).next().is_none() {
                self.add(Way { source, via: Vec::new() }, false);
            }
        }
    }

    fn way(&self, path: &RatedPath) -> Option<Way> {
        let (_, via) = path.via.split_last()?;
        let is_short = via.len() <= self.settings.intermediates;
        is_short.then(|| Way { source: path.source, via: via.to_vec() })
    }

    /// The fluid plan of what remains on what is known: units are bytes, slots seconds. Empty if
    /// there is none.
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
        // Who is not measured can be asked directly all the same.
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
            let limits = Limits { ingress: limit(into), egress: limit(out), storage: None };
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

/// What rates say of trials, legs and sets.
impl Steering {
    /// Ends the trials that are settled: is any way closed?
    fn judge(&mut self) -> bool {
        let settled = |open: &&Open| open.trial.is_some() && open.seen() >= self.settings.samples;
        let due: Vec<WayId> = self.open.iter().filter(settled).map(|open| open.id).collect();
        let gain = self.gain(&due);
        if gain < WORTH {
            let all = self.open.iter().map(Open::rate).sum();
            self.legs.limit_into(self.destination, all);
        }
        let mut changed = false;
        for id in due {
            changed |= self.judge_one(id, gain);
        }
        changed
    }

    /// Which part of what these carry is not taken from the others, of whichever source.
    fn gain(&self, due: &[WayId]) -> f64 {
        let is_due = |open: &Open| due.contains(&open.id);
        let first = self.open.iter().find_map(|open| open.trial.as_ref().filter(|_| is_due(open)));
        let Some(before) = first else { return 1.0 };
        let carried: f64 = self.open.iter().filter(|open| is_due(open)).map(Open::rate).sum();
        let taken = |open: &Open| before.get(&open.id).map_or(0.0, |was| was - open.rate());
        let taken: f64 = self.open.iter().filter(|open| !is_due(open)).map(taken).sum();
        1.0 - taken.max(0.0) / carried.max(1e-9)
    }

    /// A trial is worth its connection if everything together became faster by it; or if its source ends
    /// last, and has more now, be it from the others, who do not lose much more by it.
    fn judge_one(&mut self, id: WayId, gain: f64) -> bool {
        let Some(at) = self.open.iter().position(|open| open.id == id) else { return false };
        let Some(before) = self.open[at].trial.take() else { return false };
        let source = self.open[at].way.source;
        let carried = self.open[at].rate();
        self.learn_set(id, &before);
        let siblings = || self.of(source).filter(|open| open.id != id);
        let taken = |open: &Open| before.get(&open.id).map_or(0.0, |was| was - open.rate());
        let own = 1.0 - siblings().map(taken).sum::<f64>().max(0.0) / carried.max(1e-9);
        let forecast = self.forecast(None);
        let late = forecast.last() > LATE * self.floor()
            && forecast.ends[source as usize] >= LAST * forecast.last();
        let much = carried >= 0.03 * self.rate(source);
        let is_worth = much && own >= WORTH && (gain >= WORTH || late && gain >= -WORTH);
        if is_worth || self.of(source).count() <= 1 {
            return false;
        }
        self.close(id);
        true
    }

    /// If others slowed by half of what the new way carries or more, they share something with it.
    fn learn_set(&mut self, id: WayId, before: &BTreeMap<WayId, f64>) {
        let lost = |open: &&Open| {
            let was = before.get(&open.id).copied().unwrap_or(0.0);
            open.id != id && open.rate() < (1.0 - self.settings.drift) * was
        };
        let slowed: Vec<&Open> = self.open.iter().filter(lost).collect();
        let Some(new) = self.open.iter().find(|open| open.id == id) else { return };
        let taken: f64 = slowed
            .iter()
            .map(|open| before.get(&open.id).copied().unwrap_or(0.0) - open.rate())
            .sum();
        if slowed.is_empty() || taken < 0.5 * new.rate() {
            return;
        }
        let together: Vec<&Open> = slowed.into_iter().chain([new]).collect();
        let limit = together.iter().map(|open| open.rate()).sum();
        let legs: BTreeSet<Leg> = together.iter().filter_map(|open| self.narrowest(open)).collect();
        if legs.len() > 1 {
            self.legs.learn(legs, limit);
        }
    }

    /// The leg of a way that is taken to be its slowest.
    fn narrowest(&self, open: &Open) -> Option<Leg> {
        let legs = open.way.legs(self.destination).into_iter();
        legs.min_by(|a, b| self.legs.rate(*a).total_cmp(&self.legs.rate(*b)))
    }

    /// Holds realised rates against planned ones and corrects what is known of the legs: was any way away
    /// from its plan?
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

/// Who ends last gets ways, who ends early gives them up.
impl Steering {
    /// Opens and closes ways: has anything changed?
    fn balance(&mut self) -> bool {
        let forecast = self.forecast(None);
        let last = forecast.last();
        // What is over before a trial would be has no use for one.
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

    /// The destination's access carries what it is known to.
    fn is_full(&self) -> bool {
        let (into, _) = self.legs.host_limits(self.destination);
        self.open.iter().map(Open::rate).sum::<f64>() >= FULL * into
    }

    /// Tries one more way, or another in the place of the slowest.
    fn widen(&mut self, source: u32) -> bool {
        if self.of(source).any(|open| open.trial.is_some()) {
            return false;
        }
        let next = self.next_planned(source).or_else(|| self.best_untried(source));
        let Some((way, expected)) = next else { return false };
        let count = self.of(source).count();
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

    /// Gives up the way that carries least, if everything ends as soon without.
    fn narrow(&mut self, source: u32, last: f64) -> bool {
        let Some(slowest) = self.slowest(source) else { return false };
        let (id, is_settled) = (slowest.id, slowest.seen() >= self.settings.samples);
        if self.of(source).count() < 2 || !is_settled {
            return false;
        }
        let without = self.forecast(Some(id));
        let goes = without.last() <= SAME * last && without.ends[source as usize] <= EARLY * last;
        if goes {
            self.close(id);
        }
        goes
    }

    /// A source with data has a way at least: the best that is not benched, else the one whose pause
    /// ends first.
    fn keep_reachable(&mut self) {
        for source in 0..self.remaining.len() as u32 {
            if !self.is_waiting(source) || self.of(source).next().is_some() {
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

/// The rest is planned anew when rates are not what was planned.
impl Steering {
    /// Solves the fluid plan of what is left, with the legs as they were corrected and the sets that were
    /// learnt. Sources that end last try its ways before any others; nothing else is closed for it, as a way that
    /// carries something is better known than one that is planned. Where there is no plan, the old one stays.
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

    /// The way of the last plan that a source should try next, if it is worth it: it is not open and not
    /// benched, and promises clearly more than the one whose place it takes.
    fn next_planned(&self, source: u32) -> Option<(Way, f64)> {
        let own = self.planned.iter().filter(|(way, _)| way.source == source);
        let free = own.filter(|(way, _)| self.may_open(way));
        let (way, rate) = free.max_by(|a, b| a.1.total_cmp(b.1))?;
        let is_full = self.of(source).count() >= self.settings.ways.max(1);
        let slowest = self.slowest(source).map_or(0.0, |open| open.rate());
        (!is_full || *rate > BETTER * slowest).then(|| (way.clone(), *rate))
    }
}

/// Which way a source tries next.
impl Steering {
    /// What the open ways make of the legs.
    fn used(&self) -> Used {
        let mut used = Used::default();
        for open in &self.open {
            for leg in open.way.legs(self.destination) {
                used.put(leg, open.weight());
            }
        }
        used
    }

    /// What a way would carry if it were opened now, bytes/s.
    fn expected(&self, way: &Way) -> f64 {
        self.expected_with(way, &self.used())
    }

    fn expected_with(&self, way: &Way, used: &Used) -> f64 {
        let legs = way.legs(self.destination);
        legs.into_iter().map(|leg| self.legs.room(leg, used)).fold(f64::INFINITY, f64::min)
    }

    /// The way with the most to expect among those that are not open or benched; of equals the
    /// one with fewer intermediates. What carried something before is believed.
    fn best_untried(&self, source: u32) -> Option<(Way, f64)> {
        let used = self.used();
        let free = self.candidates(source).into_iter().filter(|way| self.may_open(way));
        let rated = free.map(|way| {
            let expected = self.expected_with(&way, &used);
            let seen = self.benched.get(&way).map_or(expected, |b| b.rate.min(expected));
            (way, seen)
        });
        // Whoever is as good within a tenth is no better: the shorter, earlier one stays.
        rated.fold(None, |best, next| match best {
            Some((_, rate)) if next.1 <= rate * 1.1 => best,
            _ => Some(next),
        })
    }

    /// It is neither open nor benched.
    fn may_open(&self, way: &Way) -> bool {
        let is_open = self.of(way.source).any(|open| open.way == *way);
        !is_open && self.benched.get(way).is_none_or(|benched| benched.until <= self.ticks)
    }

    /// The source's way that carries least.
    fn slowest(&self, source: u32) -> Option<&Open> {
        self.of(source).min_by(|a, b| a.rate().total_cmp(&b.rate()))
    }
}

/// When who would end, if the ways that are open stay.
///
/// Ways share the destination's access as TCP does, each as much as the others but for those that
/// something else slows; who is done leaves its share to the others. So a source that is slow
/// now may still be in time: nobody has to fight for an access that is full anyway.
impl Steering {
    /// The ends, if this way were closed now.
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

    /// No ways at all let everything come sooner, s: the destination's access is full all the time.
    fn floor(&self) -> f64 {
        let (into, _) = self.legs.host_limits(self.destination);
        let waiting = (0..self.remaining.len() as u32).filter(|source| self.is_waiting(*source));
        waiting.map(|source| self.remaining[source as usize] as f64).sum::<f64>() / into
    }
}

/// The ends of the sources, s from now.
#[derive(Clone, Debug, PartialEq)]
struct Forecast {
    /// By participant; 0: nothing to wait for. Infinite: never.
    ends: Vec<f64>,
}

impl Forecast {
    /// When the last one ends, s.
    fn last(&self) -> f64 {
        self.ends.iter().copied().fold(0.0, f64::max)
    }
}

/// The sources' rates: max-min fair over an access, each way at most what it carries alone.
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

/// All ways with at most so many intermediates, shorter ones first. At most [`MOST`].
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
    /// The most ways of a source that are open at a time, at least 1. Each is a connection of its
    /// own on shared bottlenecks: more of them take more from others' traffic. Of more the worst is
    /// closed.
    pub ways: usize,
    /// The most intermediates of a way.
    pub intermediates: usize,
    /// How often it is told what passed.
    pub interval: Duration,
    /// Rates that are so far from what was planned, as a fraction, are another network.
    pub drift: f64,
    /// So many intervals in a row make rates believable.
    pub samples: u32,
    /// A way that brought nothing is not tried again for so many intervals; each further time
    /// twice as long.
    pub pause: u32,
    /// On drift the rest is planned anew; else ways are only tried one by one.
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
