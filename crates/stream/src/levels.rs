//! The level of each stream on the legs to one member, from the legs' reports and from probe trains. Pure.
//!
//! The rules are MediaNet's (MGRP §3): when a leg cannot send all it should, the rate it achieved becomes the known
//! rate, and only a measurement raises that again. A node applies them to legs of which it is the parent and for which
//! the oracle has no plan.

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

/// The share of the known rate that is used; the rest covers TCP's overhead and variations of the video's rate.
const HEADROOM: f64 = 0.93;

/// A lowered level is not raised for this long, because an older estimate would raise it at once.
const HOLD: Duration = Duration::from_secs(3);

/// Legs are not judged for this long after a change, while the old level's queues drain.
const SETTLE: Duration = Duration::from_secs(2);

/// An estimate older than this raises no level.
const MAX_ESTIMATE_AGE: Duration = Duration::from_secs(20);

/// How long sent rates are remembered: the longest measurement.
const SENT_WINDOW: Duration = Duration::from_secs(65);

/// A rate that was not available is not tested again for this long.
const RETEST_PAUSE: Duration = Duration::from_millis(1500);

/// The number of limited seconds among the last three that make a leg too slow; one says little on a lossy path.
const LIMITED_SECONDS: usize = 2;

/// The most streams for which all combinations are compared; more are lowered greedily.
const MAX_EXACT: usize = 6;

/// The utility of a level to a subscriber, in MediaNet's preferences (MGRP §3.1).
pub const fn utility(level: Level) -> f64 {
    match level {
        Level::All => 1.0,
        Level::NoDisposable => 0.6,
        Level::Keys => 0.2,
    }
}

/// A leg's figures of the last second.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The stream.
    pub stream: Name,
    /// The quality that the child requests.
    pub wants: Quality,
    /// The rates of the sent tracks by class, bit/s.
    pub rates: [u64; CLASSES],
    /// The sent rate, bit/s.
    pub sent: u64,
    /// Whether the leg was too slow: frames were dropped because they had no room or were late.
    pub is_limited: bool,
}

/// The result of a measurement by probe trains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// The available rate, bit/s, beside all traffic including the legs' own; if not `is_free`, the tested rate.
    pub free: f64,
    /// Whether the rate is available.
    pub is_free: bool,
    /// When the measurement began.
    pub began: Time,
    /// When the measurement ended.
    pub ended: Time,
}

/// The known rate of the path to one member, and the levels of the streams on it.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    known: Option<KnownRate>,
    sent: VecDeque<(Time, f64)>,
    /// Whether some leg was too slow, for each of the last three seconds.
    limited: VecDeque<bool>,
    /// The last rate that was not available, and when.
    refused: Option<(f64, Time)>,
    lowered: Option<Time>,
    changed: Option<Time>,
    now: BTreeMap<Name, Level>,
}

/// The known rate of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
struct KnownRate {
    bps: f64,
    at: Time,
    is_measured: bool,
}

/// The chosen levels, and the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelChoice {
    /// The level of each stream.
    pub levels: BTreeMap<Name, Level>,
    /// The reason in words; empty if every stream gets the requested level.
    pub why: String,
    /// The known rate, bit/s, and its age, s.
    pub estimate: Option<(f64, f64)>,
    /// Whether some stream gets less than requested.
    pub is_degraded: bool,
}

impl Sample {
    fn rate(&self, level: Level) -> f64 {
        let classes = (0_u8..).zip(self.rates).filter(|(class, _)| level.takes(*class));
        classes.map(|(_, rate)| rate as f64).sum()
    }
}

impl Levels {
    /// Records a measurement.
    pub fn add_measurement(&mut self, found: Measurement) {
        // A measurement during which the levels were lowered covers two states.
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
        self.known = Some(KnownRate { bps: found.free + own, at: found.ended, is_measured: true });
    }

    /// Chooses the levels for the next second from the last second's samples of all legs to the member.
    pub fn tick(&mut self, now: Time, samples: &[Sample]) -> LevelChoice {
        let sent: f64 = samples.iter().map(|sample| sample.sent as f64).sum();
        self.sent.push_back((now, sent));
        while self.sent.front().is_some_and(|(at, _)| now.since(*at) > SENT_WINDOW) {
            self.sent.pop_front();
        }
        let is_settled = self.changed.is_none_or(|at| now.since(at) >= SETTLE);
        let is_limited = samples.iter().any(|sample| sample.is_limited);
        self.limited.push_back(is_limited);
        if self.limited.len() > 3 {
            self.limited.pop_front();
        }
        if self.limited.iter().filter(|is| **is).count() >= LIMITED_SECONDS && is_settled {
            let last = || self.sent.iter().rev().take(3).map(|(_, bps)| *bps);
            let bps = last().sum::<f64>() / last().count() as f64;
            self.known = Some(KnownRate { bps, at: now, is_measured: false });
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
        LevelChoice { levels, why, estimate, is_degraded }
    }

    /// The rate to test for a better choice, bit/s: first the rate of all requested levels, then of the smallest step.
    /// `None` if no better choice is requested or these rates were tested just now.
    pub fn rate_to_test(&self, now: Time, samples: &[Sample]) -> Option<f64> {
        if self.lowered.is_some_and(|at| now.since(at) < HOLD) {
            return None;
        }
        let at =
            |sample: &Sample| self.now.get(&sample.stream).copied().unwrap_or(sample.wants.level);
        let current: Vec<Level> = samples.iter().map(at).collect();
        let all: Vec<Level> = samples.iter().map(|sample| sample.wants.level).collect();
        let own = rate(samples, &current);
        let needs = |levels: &[Level]| rate(samples, levels) / HEADROOM - own;
        let is_better = |levels: &[Level]| total_utility(levels) > total_utility(&current) + 1e-9;
        if !is_better(&all) {
            return None;
        }
        let refused = |free: f64| {
            self.refused.is_some_and(|(bps, at)| free > 0.98 * bps && now.since(at) < RETEST_PAUSE)
        };
        let steps = single_steps(samples, &current);
        let least = steps.iter().filter(|levels| is_better(levels)).map(|levels| needs(levels));
        let least = least.min_by(f64::total_cmp);
        [Some(needs(&all)), least].into_iter().flatten().find(|free| !refused(*free))
    }

    fn reason(&self) -> String {
        let Some(known) = self.known else { return String::new() };
        let mbps = known.bps / 1e6;
        match known.is_measured {
            true => format!("probe trains measured {mbps:.2} Mbit/s for all streams to it"),
            false => format!("the path to it carried only {mbps:.2} Mbit/s"),
        }
    }

    fn choose(&self, now: Time, samples: &[Sample]) -> BTreeMap<Name, Level> {
        let wanted = || samples.iter().map(|s| (s.stream.clone(), s.wants.level)).collect();
        let Some(known) = self.known else { return wanted() };
        let budget = known.bps * HEADROOM;
        let best = best_levels(samples, budget);
        let current: Vec<Level> = samples
            .iter()
            .map(|s| self.now.get(&s.stream).copied().unwrap_or(s.wants.level).min(s.wants.level))
            .collect();
        let is_up = total_utility(&best) > total_utility(&current) + 1e-9;
        let fits = rate(samples, &current) <= known.bps;
        let held = self.lowered.is_some_and(|at| now.since(at) < HOLD);
        let is_stale = !known.is_measured || now.since(known.at) > MAX_ESTIMATE_AGE;
        let kept = match is_up {
            true => held || is_stale,
            // Neither an equally good choice nor missing headroom is a reason to change.
            false => fits,
        };
        let levels = if kept { current } else { best };
        samples.iter().zip(levels).map(|(sample, level)| (sample.stream.clone(), level)).collect()
    }
}

fn rate(samples: &[Sample], levels: &[Level]) -> f64 {
    samples.iter().zip(levels).map(|(sample, level)| sample.rate(*level)).sum()
}

fn total_utility(levels: &[Level]) -> f64 {
    levels.iter().map(|level| utility(*level)).sum()
}

/// The levels with the greatest total utility within the budget; among equals those with the lowest rate. Every stream
/// gets at least key frames, even beyond the budget.
fn best_levels(samples: &[Sample], budget: f64) -> Vec<Level> {
    if samples.len() > MAX_EXACT {
        return lower_greedily(samples, budget);
    }
    let mut best = vec![Level::Keys; samples.len()];
    let mut levels = best.clone();
    let better = |one: &[Level], other: &[Level]| {
        let by_worth = total_utility(one).total_cmp(&total_utility(other));
        let cheaper = || rate(samples, other).total_cmp(&rate(samples, one));
        let is_equal = (total_utility(one) - total_utility(other)).abs() < 1e-9;
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

/// The choices that raise one stream by one level.
fn single_steps(samples: &[Sample], current: &[Level]) -> Vec<Vec<Level>> {
    let better = |at: usize| {
        let next = Level::ALL.into_iter().rev().find(|level| *level > current[at])?;
        let mut levels = current.to_vec();
        levels[at] = next.min(samples[at].wants.level);
        (levels[at] > current[at]).then_some(levels)
    };
    (0..samples.len()).filter_map(better).collect()
}

/// Starts with the requested levels and takes the step down that saves most bit/s per lost utility until they fit.
fn lower_greedily(samples: &[Sample], budget: f64) -> Vec<Level> {
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

    /// Samples of Table 2's three streams, sent over a path of `mbps`.
    fn table2(levels: &LevelChoice, mbps: f64) -> Vec<Sample> {
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

    fn none() -> LevelChoice {
        LevelChoice {
            levels: BTreeMap::new(),
            why: String::new(),
            estimate: None,
            is_degraded: false,
        }
    }

    /// Runs through `room`, pairs of seconds and Mbit/s, with a measurement of three seconds each `every` seconds.
    fn run(levels: &mut Levels, since: u64, room: &[(u64, f64)], every: Option<u64>) -> Vec<f64> {
        let (mut chosen, mut worths, mut now) = (none(), Vec::new(), since);
        for (seconds, mbps) in room {
            for second in 0..*seconds {
                now += 1;
                let samples = table2(&chosen, *mbps);
                if every.is_some_and(|every| second > 3 && now.is_multiple_of(every)) {
                    let own: f64 = samples.iter().map(|s| s.sent as f64).sum();
                    let free = (mbps * 1e6 - own).max(0.0);
                    levels.add_measurement(Measurement {
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
    fn without_measurements_levels_never_rise() {
        // Fig. 17.
        let mut levels = Levels::default();
        let worths = run(&mut levels, 0, &[(40, 6.0), (30, 2.0), (40, 6.0)], None);
        assert!(
            (worths[0] - 3.0).abs() < 1e-9 && worths[1] < 1.5 && worths[2] == worths[1],
            "{worths:?}"
        );
    }

    #[test]
    fn measurements_raise_levels_and_peaks_lower_them() {
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
    fn the_best_choice_is_the_cheapest_of_the_greatest_utility() {
        let samples = table2(&none(), 9.0);
        let chosen = |mbps: f64| best_levels(&samples, mbps * 1e6);
        use Level::{All, Keys, NoDisposable};
        assert_eq!(chosen(3.48), [All; 3]);
        assert_eq!(total_utility(&chosen(3.4)), total_utility(&[All, All, NoDisposable]));
        assert_eq!(rate(&samples, &chosen(2.0)), 1_592_000.0, "one whole, and keys of two");
        assert_eq!(chosen(0.1), [Keys; 3]);
        for mbps in [0.1, 0.7, 1.5, 2.2, 3.0, 3.5] {
            let quick = lower_greedily(&samples, mbps * 1e6);
            assert!(total_utility(&quick) >= total_utility(&chosen(mbps)) - 0.8, "{quick:?}");
            assert!(rate(&samples, &quick) <= (mbps * 1e6).max(648_000.0));
        }
    }

    #[test]
    fn a_measurement_from_before_a_lowering_raises_nothing() {
        let mut levels = Levels::default();
        run(&mut levels, 0, &[(10, 6.0), (10, 2.0)], None);
        let lowered = levels.lowered.unwrap();
        let before = levels.known;
        let began = Time::from_nanos(lowered.as_nanos() - 1);
        levels.add_measurement(Measurement { free: 9e6, is_free: true, began, ended: at(30) });
        assert_eq!(levels.known, before);
    }

    #[test]
    fn it_tests_the_rate_of_all_requested_levels_and_then_of_the_smallest_step() {
        let mut levels = Levels::default();
        run(&mut levels, 0, &[(10, 6.0), (20, 2.0)], None);
        let (now, mut chosen) = (at(40), none());
        chosen.levels.clone_from(&levels.now);
        let samples = table2(&chosen, 9.0);
        let own: f64 = samples.iter().map(|s| s.sent as f64).sum();
        let all = levels.rate_to_test(now, &samples).unwrap();
        assert!((all - (3.48e6 / HEADROOM - own)).abs() < 1.0, "{all}");
        levels.add_measurement(Measurement {
            free: all,
            is_free: false,
            began: at(39),
            ended: at(40),
        });
        let step = levels.rate_to_test(now, &samples).unwrap();
        assert!(step < all && step > 0.0, "{step}");
        levels.add_measurement(Measurement {
            free: step,
            is_free: false,
            began: at(39),
            ended: at(40),
        });
        assert_eq!(levels.rate_to_test(now, &samples), None, "both were tested");
        assert_eq!(levels.rate_to_test(at(42), &samples), Some(all));
        levels.add_measurement(Measurement {
            free: all,
            is_free: true,
            began: at(41),
            ended: at(42),
        });
        let chosen = levels.tick(at(43), &samples);
        assert!(
            !chosen.is_degraded && levels.rate_to_test(at(44), &table2(&chosen, 9.0)).is_none()
        );
    }
}
