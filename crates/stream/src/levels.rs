//! Which level each stream gets on the legs to one member, from what the legs could send and what trains found. Pure.
//!
//! MediaNet's rules (MGRP §3): a leg that cannot send what it should makes the rate that it achieved its known rate;
//! nothing but a measurement makes that larger again. This is what a node does by itself for the legs that it is the
//! parent of; where the oracle has a plan for a leg, that holds.

use crate::Quality;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use thalweg_units::Time;
use thalweg_wire::{
    mesh::Name,
    stream::leg::{CLASSES, Level},
};

/// Of what is known to fit so much is used: TCP needs some of the rest for its own, and rates of video vary.
const HEADROOM: f64 = 0.93;

/// A level that was lowered stays for so long: an estimate from before would lift it again.
const HOLD: Duration = Duration::from_secs(3);

/// Nothing is judged so soon after a change: the queues of the old level empty first.
const SETTLE: Duration = Duration::from_secs(2);

/// An older estimate lifts nothing.
const FRESH: Duration = Duration::from_secs(20);

/// What was sent is remembered for so long: the longest measurement.
const MEMORY: Duration = Duration::from_secs(65);

/// A rate that was not free is not asked for again so soon: another one is, if there is one.
const REFUSED: Duration = Duration::from_millis(1500);

/// A leg counts as too slow when it was in so many of the last three seconds: one second of a path that loses packets says little.
const LIMITED: usize = 2;

/// Up to so many streams all choices are compared, more are lowered one after the other.
const EXACT: usize = 6;

/// What a level is worth to a subscriber: MediaNet's preferences, as the shared defaults have them.
pub const fn utility(level: Level) -> f64 {
    match level {
        Level::All => 1.0,
        Level::NoDisposable => 0.6,
        Level::Keys => 0.2,
    }
}

/// A leg's last second.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The stream.
    pub stream: Name,
    /// What the child wants.
    pub wants: Quality,
    /// The stream's rates by class, of the tracks that go, bit/s.
    pub rates: [u64; CLASSES],
    /// Bit/s sent.
    pub sent: u64,
    /// Whether the leg could not send what it should: frames were left out as they had no room or were late.
    pub is_limited: bool,
}

/// What trains found out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Bit/s that are free beside all that travels, the legs' own streams among it; of a rate that is not free, it.
    pub free: f64,
    /// Whether it is free; false: less than that is.
    pub is_free: bool,
    /// When it began.
    pub began: Time,
    /// When it ended.
    pub ended: Time,
}

/// What is known of the way to one member, and what goes over it.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    known: Option<Known>,
    sent: VecDeque<(Time, f64)>,
    /// Whether some leg was too slow, of the last seconds.
    limited: VecDeque<bool>,
    /// The last rate that was not free, and when.
    refused: Option<(f64, Time)>,
    lowered: Option<Time>,
    changed: Option<Time>,
    now: BTreeMap<Name, Level>,
}

/// The rate of the way.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    bps: f64,
    at: Time,
    is_measured: bool,
}

/// What is to go, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// By stream.
    pub levels: BTreeMap<Name, Level>,
    /// In words; empty: all that is wanted goes.
    pub why: String,
    /// The known rate, bit/s, and its age, s.
    pub estimate: Option<(f64, f64)>,
    /// Whether some stream gets less than is wanted.
    pub is_degraded: bool,
}

impl Sample {
    fn rate(&self, level: Level) -> f64 {
        let classes = (0_u8..).zip(self.rates).filter(|(class, _)| level.takes(*class));
        classes.map(|(_, rate)| rate as f64).sum()
    }
}

impl Levels {
    /// Trains have found something out.
    pub fn measured(&mut self, found: Measured) {
        // What was measured while the way was found too slow tells of two states at once.
        if self.lowered.is_some_and(|at| found.began < at) {
            return;
        }
        if !found.is_free {
            self.refused = Some((found.free, found.ended));
            return;
        }
        let during = self.sent.iter().filter(|(at, _)| (found.began..=found.ended).contains(at));
        let (sum, count) = during.fold((0.0, 0), |(sum, count), (_, bps)| (sum + bps, count + 1));
        let own = match count {
            0 => self.sent.back().map_or(0.0, |(_, bps)| *bps),
            _ => sum / f64::from(count),
        };
        self.known = Some(Known { bps: found.free + own, at: found.ended, is_measured: true });
    }

    /// A second has passed; what is to go from now on. `samples`: of each leg to the member.
    pub fn tick(&mut self, now: Time, samples: &[Sample]) -> Chosen {
        let sent: f64 = samples.iter().map(|sample| sample.sent as f64).sum();
        self.sent.push_back((now, sent));
        while self.sent.front().is_some_and(|(at, _)| now.since(*at) > MEMORY) {
            self.sent.pop_front();
        }
        let is_settled = self.changed.is_none_or(|at| now.since(at) >= SETTLE);
        let is_limited = samples.iter().any(|sample| sample.is_limited);
        self.limited.push_back(is_limited);
        if self.limited.len() > 3 {
            self.limited.pop_front();
        }
        if self.limited.iter().filter(|is| **is).count() >= LIMITED && is_settled {
            let last = || self.sent.iter().rev().take(3).map(|(_, bps)| *bps);
            let bps = last().sum::<f64>() / last().count() as f64;
            self.known = Some(Known { bps, at: now, is_measured: false });
        }
        let levels = self.choose(now, samples);
        let is_changed = levels != self.now;
        if is_changed {
            self.changed = Some(now);
            self.limited.clear();
            let lower = |(stream, level): (&Name, &Level)| {
                self.now.get(stream).is_some_and(|old| level < old)
            };
            if levels.iter().any(lower) {
                self.lowered = Some(now);
            }
            self.now.clone_from(&levels);
        }
        let is_degraded =
            samples.iter().any(|sample| levels.get(&sample.stream) < Some(&sample.wants.level));
        let why = if is_degraded { self.reason() } else { String::new() };
        let estimate = self.known.map(|known| (known.bps, now.since(known.at).as_secs_f64()));
        Chosen { levels, why, estimate, is_degraded }
    }

    /// What is to be found free so that something better can go, bit/s; `None`: nothing better is wanted, or it was asked for just
    /// now. All that is wanted first, then the least step.
    pub fn wish(&self, now: Time, samples: &[Sample]) -> Option<f64> {
        if self.lowered.is_some_and(|at| now.since(at) < HOLD) {
            return None;
        }
        let at =
            |sample: &Sample| self.now.get(&sample.stream).copied().unwrap_or(sample.wants.level);
        let current: Vec<Level> = samples.iter().map(at).collect();
        let all: Vec<Level> = samples.iter().map(|sample| sample.wants.level).collect();
        let own = rate(samples, &current);
        let needs = |levels: &[Level]| rate(samples, levels) / HEADROOM - own;
        let is_better = |levels: &[Level]| worth(levels) > worth(&current) + 1e-9;
        if !is_better(&all) {
            return None;
        }
        let refused = |free: f64| {
            self.refused.is_some_and(|(bps, at)| free > 0.98 * bps && now.since(at) < REFUSED)
        };
        let steps = steps(samples, &current);
        let least = steps.iter().filter(|levels| is_better(levels)).map(|levels| needs(levels));
        let least = least.min_by(f64::total_cmp);
        [Some(needs(&all)), least].into_iter().flatten().find(|free| !refused(*free))
    }

    fn reason(&self) -> String {
        let Some(known) = self.known else { return String::new() };
        let mbps = known.bps / 1e6;
        match known.is_measured {
            true => format!("trains found {mbps:.2} Mbit/s for all streams to it"),
            false => format!("the way to it took {mbps:.2} Mbit/s when more was to go"),
        }
    }

    fn choose(&self, now: Time, samples: &[Sample]) -> BTreeMap<Name, Level> {
        let wanted = || samples.iter().map(|s| (s.stream.clone(), s.wants.level)).collect();
        let Some(known) = self.known else { return wanted() };
        let budget = known.bps * HEADROOM;
        let best = best(samples, budget);
        let current: Vec<Level> = samples
            .iter()
            .map(|s| self.now.get(&s.stream).copied().unwrap_or(s.wants.level).min(s.wants.level))
            .collect();
        let is_up = worth(&best) > worth(&current) + 1e-9;
        let fits = rate(samples, &current) <= known.bps;
        let held = self.lowered.is_some_and(|at| now.since(at) < HOLD);
        let is_stale = !known.is_measured || now.since(known.at) > FRESH;
        let kept = match is_up {
            true => held || is_stale,
            // Another choice of the same worth is no reason to change, nor is headroom.
            false => fits,
        };
        let levels = if kept { current } else { best };
        samples.iter().zip(levels).map(|(sample, level)| (sample.stream.clone(), level)).collect()
    }
}

fn rate(samples: &[Sample], levels: &[Level]) -> f64 {
    samples.iter().zip(levels).map(|(sample, level)| sample.rate(*level)).sum()
}

fn worth(levels: &[Level]) -> f64 {
    levels.iter().map(|level| utility(*level)).sum()
}

/// The levels of the greatest worth that fit; of equal ones those of the lowest rate. What is least is not left out even
/// if it does not fit.
fn best(samples: &[Sample], budget: f64) -> Vec<Level> {
    if samples.len() > EXACT {
        return lowered(samples, budget);
    }
    let mut best = vec![Level::Keys; samples.len()];
    let mut levels = best.clone();
    let better = |one: &[Level], other: &[Level]| {
        let by_worth = worth(one).total_cmp(&worth(other));
        let cheaper = || rate(samples, other).total_cmp(&rate(samples, one));
        let is_equal = (worth(one) - worth(other)).abs() < 1e-9;
        if is_equal { cheaper().is_gt() } else { by_worth.is_gt() }
    };
    for choice in 0..3_usize.pow(samples.len() as u32) {
        let mut rest = choice;
        for (level, sample) in levels.iter_mut().zip(samples) {
            *level = Level::ALL[rest % 3].min(sample.wants.level);
            rest /= 3;
        }
        if rate(samples, &levels) <= budget && better(&levels, &best) {
            best.clone_from(&levels);
        }
    }
    best
}

/// Each choice with one stream one level better.
fn steps(samples: &[Sample], current: &[Level]) -> Vec<Vec<Level>> {
    let better = |at: usize| {
        let next = Level::ALL.into_iter().rev().find(|level| *level > current[at])?;
        let mut levels = current.to_vec();
        levels[at] = next.min(samples[at].wants.level);
        (levels[at] > current[at]).then_some(levels)
    };
    (0..samples.len()).filter_map(better).collect()
}

/// All as wanted, and then one step down after the other, that which saves most for what it costs, until it fits.
fn lowered(samples: &[Sample], budget: f64) -> Vec<Level> {
    let mut levels: Vec<Level> = samples.iter().map(|sample| sample.wants.level).collect();
    while rate(samples, &levels) > budget {
        let step = |(at, level): (usize, &Level)| {
            let lower = Level::ALL.into_iter().find(|other| other < level)?;
            let saved = samples[at].rate(*level) - samples[at].rate(lower);
            Some((at, lower, saved / (utility(*level) - utility(lower))))
        };
        let steps = levels.iter().enumerate().filter_map(step);
        let Some((at, lower, _)) = steps.max_by(|one, other| one.2.total_cmp(&other.2)) else {
            break;
        };
        levels[at] = lower;
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    /// Three streams of Table 2, as much of which is sent as `mbps`.
    fn table2(levels: &Chosen, mbps: f64) -> Vec<Sample> {
        ["a", "b", "c"]
            .map(|name| {
                let stream: Name = name.parse().unwrap();
                let rates = [0, 0, 216_000, 488_000, 456_000];
                let sample = Sample {
                    wants: Quality::default(),
                    rates,
                    sent: 0,
                    is_limited: false,
                    stream: stream.clone(),
                };
                let rate = sample.rate(levels.levels.get(&stream).copied().unwrap_or(Level::All));
                Sample { sent: rate as u64, ..sample }
            })
            .into_iter()
            .scan(mbps * 1e6, |left, mut sample| {
                sample.is_limited = sample.sent as f64 > *left;
                sample.sent = (sample.sent as f64).min(*left) as u64;
                *left -= sample.sent as f64;
                Some(sample)
            })
            .collect()
    }

    fn none() -> Chosen {
        Chosen { levels: BTreeMap::new(), why: String::new(), estimate: None, is_degraded: false }
    }

    /// Seconds with so much room, Mbit/s; a measurement each `every` seconds, of three seconds.
    fn run(levels: &mut Levels, since: u64, room: &[(u64, f64)], every: Option<u64>) -> Vec<f64> {
        let (mut chosen, mut worths, mut now) = (none(), Vec::new(), since);
        for (seconds, mbps) in room {
            for second in 0..*seconds {
                now += 1;
                let samples = table2(&chosen, *mbps);
                if every.is_some_and(|every| second > 3 && now.is_multiple_of(every)) {
                    let own: f64 = samples.iter().map(|s| s.sent as f64).sum();
                    let free = (mbps * 1e6 - own).max(0.0);
                    levels.measured(Measured {
                        free,
                        is_free: true,
                        began: at(now - 3),
                        ended: at(now),
                    });
                }
                chosen = levels.tick(at(now), &samples);
            }
            worths.push(chosen.levels.values().map(|level| utility(*level)).sum());
        }
        worths
    }

    #[test]
    fn without_measurements_it_never_goes_up() {
        // Fig. 17.
        let mut levels = Levels::default();
        let worths = run(&mut levels, 0, &[(40, 6.0), (30, 2.0), (40, 6.0)], None);
        assert!(
            (worths[0] - 3.0).abs() < 1e-9 && worths[1] < 1.5 && worths[2] == worths[1],
            "{worths:?}"
        );
    }

    #[test]
    fn measurements_lift_it_and_peaks_lower_it() {
        // Fig. 19.
        let mut levels = Levels::default();
        let room = [(40, 6.0), (30, 2.0), (40, 6.0), (30, 3.0), (40, 6.0)];
        let worths = run(&mut levels, 0, &room, Some(5));
        let expected = [3.0, 1.4, 3.0, 2.2, 3.0];
        for (worth, expected) in worths.iter().zip(expected) {
            assert!((worth - expected).abs() < 1e-9, "{worths:?}");
        }
    }

    #[test]
    fn the_best_choice_is_the_cheapest_of_the_most_worth() {
        let samples = table2(&none(), 9.0);
        let chosen = |mbps: f64| best(&samples, mbps * 1e6);
        use Level::{All, Keys, NoDisposable};
        assert_eq!(chosen(3.48), [All; 3]);
        assert_eq!(worth(&chosen(3.4)), worth(&[All, All, NoDisposable]));
        assert_eq!(rate(&samples, &chosen(2.0)), 1_592_000.0, "one whole, and keys of two");
        assert_eq!(chosen(0.1), [Keys; 3]);
        for mbps in [0.1, 0.7, 1.5, 2.2, 3.0, 3.5] {
            let quick = lowered(&samples, mbps * 1e6);
            assert!(worth(&quick) >= worth(&chosen(mbps)) - 0.8, "{quick:?}");
            assert!(rate(&samples, &quick) <= (mbps * 1e6).max(648_000.0));
        }
    }

    #[test]
    fn what_was_measured_while_it_was_lowered_lifts_nothing() {
        let mut levels = Levels::default();
        run(&mut levels, 0, &[(10, 6.0), (10, 2.0)], None);
        let lowered = levels.lowered.unwrap();
        let before = levels.known;
        let began = Time::from_nanos(lowered.as_nanos() - 1);
        levels.measured(Measured { free: 9e6, is_free: true, began, ended: at(30) });
        assert_eq!(levels.known, before);
    }

    #[test]
    fn it_asks_for_all_that_is_wanted_and_then_for_the_least_step() {
        let mut levels = Levels::default();
        run(&mut levels, 0, &[(10, 6.0), (20, 2.0)], None);
        let (now, mut chosen) = (at(40), none());
        chosen.levels.clone_from(&levels.now);
        let samples = table2(&chosen, 9.0);
        let own: f64 = samples.iter().map(|s| s.sent as f64).sum();
        let all = levels.wish(now, &samples).unwrap();
        assert!((all - (3.48e6 / HEADROOM - own)).abs() < 1.0, "{all}");
        levels.measured(Measured { free: all, is_free: false, began: at(39), ended: at(40) });
        let step = levels.wish(now, &samples).unwrap();
        assert!(step < all && step > 0.0, "{step}");
        levels.measured(Measured { free: step, is_free: false, began: at(39), ended: at(40) });
        assert_eq!(levels.wish(now, &samples), None, "both were asked for");
        assert_eq!(levels.wish(at(42), &samples), Some(all));
        levels.measured(Measured { free: all, is_free: true, began: at(41), ended: at(42) });
        let chosen = levels.tick(at(43), &samples);
        assert!(!chosen.is_degraded && levels.wish(at(44), &table2(&chosen, 9.0)).is_none());
    }
}
