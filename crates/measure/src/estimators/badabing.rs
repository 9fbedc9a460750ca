//! Badabing (Sommers et al., 2005): how often a path loses packets, and how long each loss episode lasts, with the
//! estimators of RFC 6534.
//!
//! Time is cut into slots. At each slot an *experiment* begins with some probability: it probes two slots in a row, or
//! three for every second experiment. The tool counts the patterns of congested and other slots.

use super::{Estimator, EstimatorError, Finding, Progress, Quantity, Step};
use crate::train::{Doubt, Flight, OVERHEAD, Probe, Train};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{
    collections::{BTreeMap, btree_map},
    time::Duration,
};

/// Packets per probe, back to back.
const PACKETS: usize = 3;

/// The size of a packet, with IP and UDP headers, bytes.
const SIZE: u16 = 600;

/// The bytes that the tool needs of each packet.
const HEADER: u16 = 12;

/// Slots per train.
const STRETCH: u64 = 1000;

/// Losses are attributed to a full queue if at most this share of the slots elsewhere have nearly as long a queue.
/// Where losses are random half of them have, because there is nothing but noise.
const MAX_SHARE_ELSEWHERE: f64 = 0.25;

/// With fewer slots elsewhere this cannot be decided; then all slots without a loss count.
const MIN_SLOTS_ELSEWHERE: usize = 20;

/// Settings of the tool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BadabingSettings {
    /// The length of a slot; 5 ms.
    pub slot: Duration,
    /// The probability that an experiment begins at a slot, 0 to 1.
    pub chance: f64,
    /// The total number of slots.
    pub slots: u64,
    /// A slot also counts as congested if it is this near to one with a loss…
    pub near: Duration,
    /// … and if its queueing delay exceeds the median at losses, reduced by this share.
    pub below: f64,
    /// IP and UDP header bytes per packet.
    pub overhead: u32,
    /// The seed of the random draws.
    pub seed: u64,
    /// Whether probes may carry riders.
    pub may_carry: bool,
}

impl BadabingSettings {
    /// The public tool's slots, for this duration; over IPv4.
    pub fn new(chance: f64, lasts: Duration, seed: u64) -> Self {
        let slot = Duration::from_millis(5);
        let slots = (lasts.as_secs_f64() / slot.as_secs_f64()) as u64;
        let near = Duration::from_millis(50);
        let (below, overhead, may_carry) = (0.05, OVERHEAD, false);
        Self { slot, chance, slots, near, below, overhead, seed, may_carry }
    }
}

/// The result of a slot's probe.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    is_lossy: bool,
    /// The highest delay of its packets, ns; `None`: all were lost.
    delay: Option<i64>,
}

/// Frequency and duration of losses.
#[derive(Clone, Debug)]
pub struct Badabing {
    settings: BadabingSettings,
    random: Xoshiro256PlusPlus,
    /// The slot at which the next train begins.
    begins: u64,
    /// The first slot of each experiment, and its number of slots.
    experiments: Vec<(u64, u64)>,
    /// The slots that the next train probes.
    probed: Vec<u64>,
    /// Slots of experiments that reach into the next stretch.
    beyond: Vec<u64>,
    seen: BTreeMap<u64, Slot>,
    trains: u32,
}

impl Badabing {
    /// Creates the tool before its first slot.
    pub fn new(settings: BadabingSettings) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(settings.seed);
        let (experiments, probed, beyond, seen) = Default::default();
        let (begins, trains) = (0, 0);
        let mut tool = Self { settings, random, begins, experiments, probed, beyond, seen, trains };
        tool.draw();
        tool
    }

    /// Draws the probed slots of the next stretch; none if no experiment begins in it.
    fn draw(&mut self) {
        let end = (self.begins + STRETCH).min(self.settings.slots);
        let mut probed = std::mem::take(&mut self.beyond);
        for slot in self.begins..end {
            let draw = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            if draw < self.settings.chance {
                let long = 2 + self.experiments.len() as u64 % 2;
                self.experiments.push((slot, long));
                probed.extend(slot..slot + long);
            }
        }
        probed.sort_unstable();
        probed.dedup();
        let within = probed.partition_point(|slot| *slot < end);
        self.beyond = probed.split_off(within);
        self.probed = probed;
    }

    /// The train of the present stretch. Its gaps are the waits between slots, so that even the first probe is at its
    /// slot.
    fn train(&self) -> Option<Train> {
        let BadabingSettings { slot, may_carry, overhead, .. } = self.settings;
        let size = SIZE.saturating_sub(overhead as u16);
        let mut before = self.begins;
        let mut probes = Vec::new();
        for at in &self.probed {
            let gap = slot * (at - before) as u32;
            before = *at;
            let probe = |gap| Probe { size, header: HEADER, gap, may_carry };
            probes.push(probe(gap));
            probes.extend([probe(Duration::ZERO); PACKETS - 1]);
        }
        Some(Train::new(probes).ok()?.with_overhead(overhead))
    }

    fn is_over(&self) -> bool {
        self.begins >= self.settings.slots
    }

    /// Computes a slot's queueing delay, ns: how much later its probe arrived than the earliest of all.
    fn queue(&self) -> impl Fn(&Slot) -> Option<f64> + use<> {
        let least = self.seen.values().filter_map(|slot| slot.delay).min().unwrap_or(0);
        move |slot| slot.delay.map(|delay| (delay - least) as f64)
    }

    /// The slots near this one, including itself.
    fn around(&self, at: u64) -> btree_map::Range<'_, u64, Slot> {
        let near = (self.settings.near.as_nanos() / self.settings.slot.as_nanos().max(1)) as u64;
        self.seen.range(at.saturating_sub(near)..=at.saturating_add(near))
    }

    /// The queueing delay from which a slot near a loss is congested, ns; `None`: there is no loss, or no queue caused
    /// one.
    fn full(&self) -> Option<f64> {
        let queue = self.queue();
        let losses = self.seen.iter().filter(|(_, slot)| slot.is_lossy);
        // The length of the queue when it overflows, as seen by the packets that arrived beside a loss, or else by
        // those near it.
        let at_loss = |(at, slot): (&u64, &Slot)| {
            let near = || self.around(*at).filter_map(|(_, near)| queue(near)).reduce(f64::max);
            queue(slot).or_else(near)
        };
        let full = (1.0 - self.settings.below) * median(losses.filter_map(at_loss).collect())?;
        let whole = || self.seen.iter().filter(|(_, slot)| !slot.is_lossy);
        let far = |(at, _): &(&u64, &Slot)| !self.has_loss_near(**at);
        let mut others: Vec<f64> =
            whole().filter(far).filter_map(|(_, slot)| queue(slot)).collect();
        if others.len() < MIN_SLOTS_ELSEWHERE {
            others = whole().filter_map(|(_, slot)| queue(slot)).collect();
        }
        let long = others.iter().filter(|queue| **queue >= full).count();
        (long as f64 <= MAX_SHARE_ELSEWHERE * others.len() as f64).then_some(full)
    }

    fn has_loss_near(&self, at: u64) -> bool {
        self.around(at).any(|(_, other)| other.is_lossy)
    }

    /// Marks slots as congested: those with a loss, and those near one with nearly as long a queue.
    fn congested(&self) -> BTreeMap<u64, bool> {
        let (queue, full) = (self.queue(), self.full());
        let is_long = |slot: &Slot| full.zip(queue(slot)).is_some_and(|(full, q)| q > full);
        let judge = |(at, slot): (&u64, &Slot)| {
            (*at, slot.is_lossy || (is_long(slot) && self.has_loss_near(*at)))
        };
        self.seen.iter().map(judge).collect()
    }

    fn result(&self) -> Result<Vec<Finding>, EstimatorError> {
        let congested = self.congested();
        let mut counts: BTreeMap<Vec<bool>, u32> = BTreeMap::new();
        for (at, long) in &self.experiments {
            let pattern: Option<Vec<bool>> =
                (*at..at + long).map(|slot| congested.get(&slot).copied()).collect();
            if let Some(pattern) = pattern {
                *counts.entry(pattern).or_default() += 1;
            }
        }
        if counts.is_empty() {
            return Err(EstimatorError::Unclear);
        }
        Ok(findings(&counts, self.settings.slot, episodes(&congested)))
    }
}

/// The number of runs of congested slots.
fn episodes(congested: &BTreeMap<u64, bool>) -> u32 {
    let all: Vec<bool> = congested.values().copied().collect();
    all.chunk_by(|one, next| one == next).filter(|run| run[0]).count() as u32
}

/// The median: a few late stamps of a host do not make the queue look longer.
fn median(mut of: Vec<f64>) -> Option<f64> {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied()
}

/// The findings from the number of times that each pattern was seen and the number of episodes. The first two slots of
/// an experiment of three count as an experiment of two as well.
fn findings(counts: &BTreeMap<Vec<bool>, u32>, slot: Duration, episodes: u32) -> Vec<Finding> {
    let sum = |is: &dyn Fn(&[bool]) -> bool| {
        counts.iter().filter(|(pattern, _)| is(pattern)).map(|(_, n)| f64::from(*n)).sum::<f64>()
    };
    let all = sum(&|_| true);
    let frequency = sum(&|pattern| pattern[0]) / all;
    let mut found = vec![Finding::share(Quantity::LossFrequency, frequency, (episodes, all))];
    let any = sum(&|pattern| pattern[0] || pattern[1]);
    let changes = sum(&|pattern| pattern[0] != pattern[1]);
    let three = |of: [[bool; 3]; 2]| sum(&|pattern| of.iter().any(|one| one[..] == *pattern));
    let both = three([[false, true, true], [true, true, false]]);
    let single = three([[false, false, true], [true, false, false]]);
    // RFC 6534's improved estimator, if its counts suffice: it corrects for probes that do not see a congestion.
    let slots = match (both > 0.0 && single > 0.0, changes > 0.0) {
        (_, false) => return found,
        (true, _) => 2.0 * single / both * (any / changes - 1.0) + 1.0,
        (false, _) => 2.0 * any / changes - 1.0,
    };
    found.push(Finding::counted(Quantity::LossDuration, slots * slot.as_secs_f64(), episodes));
    found
}

impl Estimator for Badabing {
    fn name(&self) -> &'static str {
        "badabing"
    }

    fn next(&mut self) -> Step {
        let mut empty = Duration::ZERO;
        while !self.is_over() {
            if let Some(train) = self.train() {
                // Nothing is sent from the last probe's slot to the end of its stretch.
                return Step::Send { train, after: empty + self.rest() };
            }
            let end = (self.begins + STRETCH).min(self.settings.slots);
            empty += self.settings.slot * (end - self.begins) as u32;
            self.begins = end;
            self.draw();
        }
        Step::Done(self.result())
    }

    fn record(&mut self, flight: &Flight) {
        self.trains += 1;
        let mut packets = (0..flight.sent.len()).map(|at| (flight.sent[at], flight.arrived[at]));
        for slot in std::mem::take(&mut self.probed) {
            let mut of = Slot::default();
            for (sent, arrived) in packets.by_ref().take(PACKETS) {
                of.is_lossy |= sent.is_some() && arrived.is_none();
                let delay = sent.zip(arrived).map(|(sent, arrived)| arrived.delay(sent));
                of.delay = of.delay.max(delay);
            }
            self.seen.insert(slot, of);
        }
        self.begins = (self.begins + STRETCH).min(self.settings.slots);
        self.draw();
    }

    fn doubts(&self) -> Vec<Doubt> {
        let has_losses = self.seen.values().any(|slot| slot.is_lossy);
        Vec::from_iter((has_losses && self.full().is_none()).then_some(Doubt::Queueless))
    }

    fn partial_findings(&self) -> Option<Vec<Finding>> {
        self.result().ok()
    }

    fn progress(&self) -> Progress {
        Progress { trains: self.trains, between: None, phase: "slots" }
    }
}

impl Badabing {
    /// The time from the end of the last train to the beginning of this one's stretch.
    fn rest(&self) -> Duration {
        let last = self.seen.last_key_value().map(|(slot, _)| *slot);
        let from = last.map_or(self.begins, |slot| slot.max(self.begins.saturating_sub(STRETCH)));
        self.settings.slot * (self.begins.saturating_sub(from)) as u32
    }
}

#[cfg(test)]
#[path = "badabing_tests.rs"]
mod tests;
