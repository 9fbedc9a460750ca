//! The quality of each stream on the legs to one member, from the legs' reports and from probe trains. Pure.
//!
//! A quality is a rendition of the stream's ladder and a level of frames. A lower level of a rendition and a rendition
//! of a lower rate are equal means: the utilities decide.
//!
//! The rules are MediaNet's (MGRP §3): when a leg cannot send all it should, the rate it achieved becomes the known
//! rate, and only a measurement raises that again. A node applies them to legs of which it is the parent and for which
//! the oracle has no plan.

use crate::Quality;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use thalweg_plan::streams::{HoldDown, LIMITED_SECONDS, MEMORY, Rules, SECONDS};
use thalweg_units::Time;
use thalweg_wire::{
    mesh::Name,
    stream::{
        leg::{CLASSES, Level},
        plan::Preference,
    },
};

/// A rate that was not available is not tested again for this long.
const RETEST_PAUSE: Duration = Duration::from_millis(600);

/// Smaller differences between utilities are rounding errors.
const EPSILON: f64 = 1e-9;

/// For this long after a change of levels the sent rates include seconds with the old levels.
const NEW_LEVELS: Duration = Duration::from_secs(3);

/// Tested rates are higher by this factor than the rates that the levels need, because rates of streams vary.
const TEST_MARGIN: f64 = 1.04;

/// The most combinations that are compared; with more of them streams are lowered greedily.
const MAX_EXACT: usize = 2000;

/// A quality that a leg can send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QualityOption {
    pub quality: Quality,
    /// The rate of its frames, bit/s.
    pub rate: f64,
    /// Its utility to the subscriber; 1 is the best.
    pub utility: f64,
}

/// The rates of a rendition with tables and audio, by class, bit/s. `None`: all renditions at once.
pub type RenditionRates = (Option<u8>, [u64; CLASSES]);

/// A leg's figures of the last second.
#[derive(Clone, Debug)]
pub struct Sample {
    pub stream: Name,
    /// The qualities that the leg can send, the best first; not empty.
    pub options: Vec<QualityOption>,
    /// The sent rate, bit/s.
    pub sent: u64,
    /// Whether the leg was too slow: frames were dropped because they had no room or were late.
    pub is_limited: bool,
}

/// The rate that is available in addition to all traffic including the legs' own, bit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AvailableRate {
    About(f64),
    /// This tested rate, and maybe more.
    AtLeast(f64),
    /// Less than this tested rate.
    Below(f64),
}

/// The result of a measurement by probe trains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    pub room: AvailableRate,
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
    /// Whether some leg was too slow, for each of the last [`SECONDS`].
    limited: VecDeque<bool>,
    /// The last rate that was not available, and when.
    refused: Option<(f64, Time)>,
    hold: HoldDown,
    rules: Rules,
    changed: Option<Time>,
    /// How often the levels were lowered.
    falls: u64,
    now: BTreeMap<Name, Quality>,
    /// The rate of the chosen qualities, bit/s.
    chosen: f64,
}

/// The known rate of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
struct KnownRate {
    bps: f64,
    at: Time,
    is_measured: bool,
}

/// The chosen qualities, and the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelChoice {
    /// The quality of each stream.
    pub qualities: BTreeMap<Name, Quality>,
    /// The reason in words; empty if every stream gets the requested level.
    pub why: String,
    /// The known rate, bit/s, and its age, s.
    pub estimate: Option<(f64, f64)>,
    /// Whether some stream gets less than requested.
    pub is_degraded: bool,
}

impl Sample {
    /// The options: each rendition with each of these levels. A rendition's utility is the square root of its rate's
    /// share of the highest, because quality grows ever more slowly with the rate.
    pub fn options(renditions: &[RenditionRates], levels: &[Level]) -> Vec<QualityOption> {
        let rate = |rates: &[u64; CLASSES], level: Level| {
            let classes = (0_u8..).zip(rates).filter(|(class, _)| level.takes(*class));
            classes.map(|(_, rate)| *rate as f64).sum::<f64>()
        };
        let highest =
            renditions.iter().map(|(_, rates)| rate(rates, Level::All)).fold(1.0, f64::max);
        let choice = |(track, rates): &RenditionRates, level: Level| {
            let share = match track {
                Some(_) => (rate(rates, Level::All) / highest).sqrt(),
                None => 1.0,
            };
            let quality = Quality { track: *track, level };
            QualityOption {
                quality,
                rate: rate(rates, level),
                utility: Preference::default_utility(level) * share,
            }
        };
        let mut options: Vec<QualityOption> = renditions
            .iter()
            .flat_map(|rendition| levels.iter().map(move |level| choice(rendition, *level)))
            .collect();
        options.sort_by(|one, other| other.utility.total_cmp(&one.utility));
        options
    }

    /// The position of a quality among the options; 0, the best, if it is none of them.
    fn position(&self, quality: Option<&Quality>) -> usize {
        let is = |choice: &QualityOption| Some(&choice.quality) == quality;
        self.options.iter().position(is).unwrap_or(0)
    }

    fn cheapest(&self) -> usize {
        let positions = 0..self.options.len();
        let cheapest =
            positions.min_by(|a, b| self.options[*a].rate.total_cmp(&self.options[*b].rate));
        cheapest.unwrap_or(0)
    }
}

impl Levels {
    /// Records a measurement.
    pub fn add_measurement(&mut self, found: Measurement) {
        // A measurement during which the levels were lowered covers two states.
        if self.hold.last_fall().is_some_and(|at| found.began < at) {
            return;
        }
        let free = match found.room {
            AvailableRate::About(free) | AvailableRate::AtLeast(free) => free,
            AvailableRate::Below(tested) => {
                self.refused = Some((tested, found.ended));
                return;
            }
        };
        let mut bps = free + self.own_rate(found.began, found.ended);
        if let (AvailableRate::AtLeast(_), Some(known)) = (found.room, self.known) {
            bps = bps.max(known.bps);
        }
        self.known = Some(KnownRate { bps, at: found.ended, is_measured: true });
    }

    /// The rate of the legs' own streams between these times, bit/s.
    fn own_rate(&self, began: Time, ended: Time) -> f64 {
        let during = self.sent.iter().filter(|(at, _)| (began..=ended).contains(at));
        let (sum, count) = during.fold((0.0, 0), |(sum, count), (_, bps)| (sum + bps, count + 1));
        let sent = match count {
            0 => self.sent.back().map_or(0.0, |(_, bps)| *bps),
            _ => sum / f64::from(count),
        };
        // After a raise, the rate sent in the last second is lower than the rate of the new levels.
        let is_new = self.changed.is_some_and(|at| at <= began && ended.since(at) < NEW_LEVELS);
        let is_limited = self.limited.back().is_some_and(|is| *is);
        if is_new && !is_limited { sent.max(self.chosen) } else { sent }
    }

    /// Chooses the levels for the next second from the last second's samples of all legs to the member.
    pub fn tick(&mut self, now: Time, samples: &[Sample]) -> LevelChoice {
        let sent: f64 = samples.iter().map(|sample| sample.sent as f64).sum();
        self.sent.push_back((now, sent));
        while self.sent.front().is_some_and(|(at, _)| now.since(*at) > MEMORY) {
            self.sent.pop_front();
        }
        let is_settled = self.changed.is_none_or(|at| now.since(at) >= self.rules.settle);
        let is_limited = samples.iter().any(|sample| sample.is_limited);
        self.limited.push_back(is_limited);
        if self.limited.len() > SECONDS {
            self.limited.pop_front();
        }
        if self.limited.iter().filter(|is| **is).count() >= LIMITED_SECONDS && is_settled {
            let bps = self.achieved();
            self.known = Some(KnownRate { bps, at: now, is_measured: false });
        }
        let before = self.positions(samples);
        let positions = self.choose(now, samples);
        let qualities: BTreeMap<Name, Quality> = samples
            .iter()
            .zip(&positions)
            .map(|(s, at)| (s.stream.clone(), s.options[*at].quality))
            .collect();
        if qualities != self.now {
            self.changed = Some(now);
            self.limited.clear();
            let worth = |at: usize, positions: &[usize]| samples[at].options[positions[at]].utility;
            let known = |at: &usize| self.now.contains_key(&samples[*at].stream);
            let gains = (0..samples.len())
                .filter(known)
                .map(|at| worth(at, &positions) - worth(at, &before));
            // A change with the same or a higher total utility does not count as lowering.
            match gains.sum::<f64>() {
                gain if gain < -EPSILON => {
                    self.hold.lowered(now, &self.rules);
                    self.falls += 1;
                }
                gain if gain > EPSILON => self.hold.raised(now),
                _ => {}
            }
            self.now.clone_from(&qualities);
        }
        self.chosen = rate(samples, &positions);
        let is_degraded = positions.iter().any(|at| *at > 0);
        let why = if is_degraded { self.reason() } else { String::new() };
        let estimate = self.known.map(|known| (known.bps, now.since(known.at).as_secs_f64()));
        LevelChoice { qualities, why, estimate, is_degraded }
    }

    /// The mean rate of the limited seconds among the last ones, bit/s.
    fn achieved(&self) -> f64 {
        let recent = self.sent.iter().rev().zip(self.limited.iter().rev());
        let limited: Vec<f64> =
            recent.filter(|(_, is_limited)| **is_limited).map(|((_, bps), _)| *bps).collect();
        limited.iter().sum::<f64>() / limited.len().max(1) as f64
    }

    /// How often the levels were lowered.
    pub const fn falls(&self) -> u64 {
        self.falls
    }

    /// The positions of the samples' present qualities.
    fn positions(&self, samples: &[Sample]) -> Vec<usize> {
        samples.iter().map(|sample| sample.position(self.now.get(&sample.stream))).collect()
    }

    /// The rate to test for a better choice, bit/s: first the rate of the best qualities, then of the smallest step.
    /// `None` if no better choice is requested or these rates were tested just now.
    pub fn rate_to_test(&self, now: Time, samples: &[Sample]) -> Option<f64> {
        // A path that is too slow for the present levels needs no test, and probes would make it slower.
        let is_limited = samples.iter().any(|sample| sample.is_limited);
        if is_limited || self.hold.is_held(now, &self.rules) {
            return None;
        }
        let current = self.positions(samples);
        let own = rate(samples, &current);
        let needs =
            |positions: &[usize]| TEST_MARGIN * rate(samples, positions) / self.rules.fill - own;
        if current.iter().all(|at| *at == 0) {
            return None;
        }
        let refused = |free: f64| {
            self.refused.is_some_and(|(bps, at)| free > 0.98 * bps && now.since(at) < RETEST_PAUSE)
        };
        let step = |at: usize| {
            let mut positions = current.clone();
            positions[at] = positions[at].checked_sub(1)?;
            Some(needs(&positions))
        };
        let least = (0..samples.len()).filter_map(step).min_by(f64::total_cmp);
        let all = needs(&vec![0; samples.len()]);
        [Some(all), least].into_iter().flatten().find(|free| !refused(*free))
    }

    fn reason(&self) -> String {
        let Some(known) = self.known else { return String::new() };
        let mbps = known.bps / 1e6;
        match known.is_measured {
            true => format!("probe trains measured {mbps:.2} Mbit/s for all streams to it"),
            false => format!("the path to it carried only {mbps:.2} Mbit/s"),
        }
    }

    fn choose(&self, now: Time, samples: &[Sample]) -> Vec<usize> {
        let Some(known) = self.known else { return vec![0; samples.len()] };
        let best = best_positions(samples, (known.bps * self.rules.fill).ceil());
        let current = self.positions(samples);
        let is_up = total_utility(samples, &best) > total_utility(samples, &current) + EPSILON;
        let fits = rate(samples, &current) <= known.bps * self.rules.headroom;
        let held = self.hold.is_held(now, &self.rules);
        let is_stale = !known.is_measured || now.since(known.at) > self.rules.fresh;
        let kept = match is_up {
            true => held || is_stale,
            // Neither an equally good choice nor missing headroom is a reason to change.
            false => fits,
        };
        if kept { current } else { best }
    }
}

fn rate(samples: &[Sample], positions: &[usize]) -> f64 {
    samples.iter().zip(positions).map(|(sample, at)| sample.options[*at].rate).sum()
}

fn total_utility(samples: &[Sample], positions: &[usize]) -> f64 {
    samples.iter().zip(positions).map(|(sample, at)| sample.options[*at].utility).sum()
}

/// The choices with the greatest total utility within the budget; among equals those with the lowest rate. Every stream
/// gets at least its cheapest choice, even beyond the budget.
fn best_positions(samples: &[Sample], budget: f64) -> Vec<usize> {
    let counts = samples.iter().map(|sample| sample.options.len());
    let combinations = counts.clone().try_fold(1_usize, usize::checked_mul);
    let Some(combinations) = combinations.filter(|count| *count <= MAX_EXACT) else {
        return lower_greedily(samples, budget);
    };
    let mut best: Vec<usize> = samples.iter().map(Sample::cheapest).collect();
    let mut positions = best.clone();
    let better = |one: &[usize], other: &[usize]| {
        let difference = total_utility(samples, one) - total_utility(samples, other);
        let is_cheaper = rate(samples, one) < rate(samples, other);
        if difference.abs() < EPSILON { is_cheaper } else { difference > 0.0 }
    };
    for combination in 0..combinations {
        let mut rest = combination;
        for (position, count) in positions.iter_mut().zip(counts.clone()) {
            *position = rest % count;
            rest /= count;
        }
        if rate(samples, &positions) <= budget && better(&positions, &best) {
            best.clone_from(&positions);
        }
    }
    best
}

/// Starts with the best choices and takes the step down that saves most bit/s per lost utility until they fit.
fn lower_greedily(samples: &[Sample], budget: f64) -> Vec<usize> {
    let mut positions = vec![0; samples.len()];
    while rate(samples, &positions) > budget {
        let step = |at: usize| {
            let options = &samples[at].options;
            let now = options[positions[at]];
            let lower =
                (positions[at] + 1..options.len()).find(|to| options[*to].rate < now.rate)?;
            let lost = (now.utility - options[lower].utility).max(1e-9);
            Some((at, lower, (now.rate - options[lower].rate) / lost))
        };
        let steps = (0..samples.len()).filter_map(step);
        let Some((at, lower, _)) = steps.max_by(|one, other| one.2.total_cmp(&other.2)) else {
            break;
        };
        positions[at] = lower;
    }
    positions
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
                let options = Sample::options(&[(None, rates)], &Level::ALL);
                sample(stream, options, levels)
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

    /// A sample of a leg that sends the chosen quality.
    fn sample(stream: Name, options: Vec<QualityOption>, chosen: &LevelChoice) -> Sample {
        let sample = Sample { stream, options, sent: 0, is_limited: false };
        let position = sample.position(chosen.qualities.get(&sample.stream));
        Sample { sent: sample.options[position].rate as u64, ..sample }
    }

    fn none() -> LevelChoice {
        LevelChoice {
            qualities: BTreeMap::new(),
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
                        room: AvailableRate::About(free),
                        began: at(now - 3),
                        ended: at(now),
                    });
                }
                chosen = levels.tick(at(now), &samples);
            }
            worths.push(
                chosen
                    .qualities
                    .values()
                    .map(|quality| Preference::default_utility(quality.level))
                    .sum(),
            );
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
        let chosen = |mbps: f64| best_positions(&samples, mbps * 1e6);
        assert_eq!(chosen(3.48), [0; 3]);
        assert_eq!(total_utility(&samples, &chosen(3.4)), total_utility(&samples, &[0, 0, 1]));
        assert_eq!(rate(&samples, &chosen(2.0)), 1_592_000.0, "one whole, and keys of two");
        assert_eq!(chosen(0.1), [2; 3]);
        for mbps in [0.1, 0.7, 1.5, 2.2, 3.0, 3.5] {
            let (quick, best) = (lower_greedily(&samples, mbps * 1e6), chosen(mbps));
            let loss = total_utility(&samples, &best) - total_utility(&samples, &quick);
            assert!(loss <= 0.8, "{quick:?}");
            assert!(rate(&samples, &quick) <= (mbps * 1e6).max(648_000.0));
        }
    }

    /// A stream with two renditions, of 3 and 1 Mbit/s with a third of it in disposable frames, over a path of `mbps`.
    fn ladder(chosen: &LevelChoice, mbps: f64) -> Vec<Sample> {
        let rendition = |track, bps: u64| (Some(track), [0, 0, bps / 3, bps / 3, bps / 3]);
        let renditions = [rendition(0, 3_000_000), rendition(1, 1_000_000)];
        let options = Sample::options(&renditions, &Level::ALL);
        let sample = sample("a".parse().unwrap(), options, chosen);
        let is_limited = sample.sent as f64 > mbps * 1e6;
        vec![Sample { sent: sample.sent.min((mbps * 1e6) as u64), is_limited, ..sample }]
    }

    #[test]
    fn a_rendition_of_a_lower_rate_ranks_equal_to_a_lower_level() {
        let samples = ladder(&none(), 9.0);
        let best = |mbps: f64| {
            let position = best_positions(&samples, mbps * 1e6)[0];
            let Quality { track, level } = samples[0].options[position].quality;
            (track.unwrap(), level)
        };
        use Level::{All, Keys, NoDisposable};
        assert_eq!([best(3.0), best(2.0), best(1.0)], [(0, All), (0, NoDisposable), (1, All)]);
        assert_eq!([best(0.7), best(0.4)], [(1, NoDisposable), (1, Keys)]);
    }

    #[test]
    fn a_leg_takes_the_rendition_that_fits_and_returns_after_a_measurement() {
        let (mut levels, mut chosen) = (Levels::default(), none());
        for now in 0..10 {
            chosen = levels.tick(at(now), &ladder(&chosen, 9.0));
        }
        assert_eq!(
            (chosen.qualities.values().next().unwrap().track, chosen.is_degraded),
            (Some(0), false)
        );
        for now in 10..20 {
            chosen = levels.tick(at(now), &ladder(&chosen, 1.2));
        }
        assert_eq!(chosen.qualities.values().next().unwrap().track, Some(1));
        assert!(chosen.is_degraded && chosen.why.contains("carried only"), "{chosen:?}");
        let free = levels.rate_to_test(at(20), &ladder(&chosen, 9.0)).unwrap();
        levels.add_measurement(Measurement {
            room: AvailableRate::AtLeast(free),
            began: at(20),
            ended: at(21),
        });
        chosen = levels.tick(at(21), &ladder(&chosen, 9.0));
        assert_eq!(chosen.qualities.values().next().unwrap().track, Some(0));
    }

    /// A path that is policed to 2 Mbit/s with a burst of 1 MB, through which all probe trains pass.
    struct Policed {
        tokens: f64,
    }

    impl Policed {
        /// Sends for a second.
        fn send(&mut self, samples: &mut [Sample]) {
            self.tokens = (self.tokens + 250e3).min(1e6);
            for sample in samples {
                let passed = (sample.sent as f64 / 8.0).min(self.tokens);
                sample.is_limited = passed * 8.0 + 1.0 < sample.sent as f64;
                sample.sent = (passed * 8.0) as u64;
                self.tokens -= passed;
            }
        }
    }

    /// The changes of quality in ten minutes over a policed path.
    fn switches(samples_of: impl Fn(&LevelChoice) -> Vec<Sample>) -> usize {
        let (mut levels, mut chosen, mut path) =
            (Levels::default(), none(), Policed { tokens: 1e6 });
        let mut switches = 0;
        for now in 0..600 {
            let mut samples = samples_of(&chosen);
            path.send(&mut samples);
            if let Some(free) = levels.rate_to_test(at(now), &samples) {
                let began = Time::from_nanos(at(now).as_nanos() - 500_000_000);
                levels.add_measurement(Measurement {
                    room: AvailableRate::AtLeast(free),
                    began,
                    ended: at(now),
                });
            }
            let next = levels.tick(at(now), &samples);
            switches += usize::from(next.qualities != chosen.qualities);
            chosen = next;
        }
        switches
    }

    #[test]
    fn qualities_rarely_change_on_a_policed_path() {
        let levels = switches(|chosen| table2(chosen, 9.0));
        assert!((2..=30).contains(&levels), "{levels} changes of levels");
        let renditions = switches(|chosen| ladder(chosen, 9.0));
        assert!((2..=30).contains(&renditions), "{renditions} changes of renditions");
    }

    #[test]
    fn a_tested_rate_never_lowers_what_is_known() {
        let mut levels = Levels::default();
        let found = |room| Measurement { room, began: at(20), ended: at(21) };
        levels.add_measurement(found(AvailableRate::About(4e6)));
        levels.add_measurement(found(AvailableRate::AtLeast(1e6)));
        assert_eq!(levels.known.map(|known| known.bps), Some(4e6));
        levels.add_measurement(found(AvailableRate::About(1e6)));
        assert_eq!(levels.known.map(|known| known.bps), Some(1e6));
    }

    #[test]
    fn what_is_sent_just_after_a_rise_counts_as_the_new_levels() {
        let mut levels = Levels::default();
        run(&mut levels, 0, &[(10, 6.0), (20, 2.0)], None);
        let mut chosen = none();
        chosen.qualities.clone_from(&levels.now);
        let samples = table2(&chosen, 9.0);
        let found = |began, ended, room| Measurement { room, began: at(began), ended: at(ended) };
        levels.add_measurement(found(40, 41, AvailableRate::AtLeast(9e6)));
        levels.tick(at(41), &samples);
        assert!((levels.chosen - 3.48e6).abs() < 1.0, "{}", levels.chosen);
        // No sample shows the new rate yet.
        levels.add_measurement(found(41, 42, AvailableRate::About(2e6)));
        assert_eq!(levels.known.map(|known| known.bps.round()), Some(5.48e6));
    }

    #[test]
    fn a_path_that_is_too_slow_now_is_not_tested() {
        let mut levels = Levels::default();
        run(&mut levels, 0, &[(10, 6.0), (20, 2.0)], None);
        let mut chosen = none();
        chosen.qualities.clone_from(&levels.now);
        let mut samples = table2(&chosen, 9.0);
        assert!(levels.rate_to_test(at(40), &samples).is_some());
        samples[0].is_limited = true;
        assert_eq!(levels.rate_to_test(at(40), &samples), None);
    }

    #[test]
    fn a_measurement_from_before_a_lowering_raises_nothing() {
        let mut levels = Levels::default();
        run(&mut levels, 0, &[(10, 6.0), (10, 2.0)], None);
        let lowered = levels.hold.last_fall().unwrap();
        let before = levels.known;
        let began = Time::from_nanos(lowered.as_nanos() - 1);
        levels.add_measurement(Measurement {
            room: AvailableRate::About(9e6),
            began,
            ended: at(30),
        });
        assert_eq!(levels.known, before);
    }

    #[test]
    fn it_tests_the_rate_of_all_requested_levels_and_then_of_the_smallest_step() {
        let mut levels = Levels::default();
        run(&mut levels, 0, &[(10, 6.0), (20, 2.0)], None);
        let (now, mut chosen) = (at(40), none());
        chosen.qualities.clone_from(&levels.now);
        let samples = table2(&chosen, 9.0);
        let own: f64 = samples.iter().map(|s| s.sent as f64).sum();
        let all = levels.rate_to_test(now, &samples).unwrap();
        assert!((all - (TEST_MARGIN * 3.48e6 / Rules::default().fill - own)).abs() < 1.0, "{all}");
        levels.add_measurement(Measurement {
            room: AvailableRate::Below(all),
            began: at(39),
            ended: at(40),
        });
        let step = levels.rate_to_test(now, &samples).unwrap();
        assert!(step < all && step > 0.0, "{step}");
        levels.add_measurement(Measurement {
            room: AvailableRate::Below(step),
            began: at(39),
            ended: at(40),
        });
        assert_eq!(levels.rate_to_test(now, &samples), None, "both were tested");
        assert_eq!(levels.rate_to_test(at(42), &samples), Some(all));
        levels.add_measurement(Measurement {
            room: AvailableRate::AtLeast(all),
            began: at(41),
            ended: at(42),
        });
        let chosen = levels.tick(at(43), &samples);
        assert!(
            !chosen.is_degraded && levels.rate_to_test(at(44), &table2(&chosen, 9.0)).is_none()
        );
    }
}
