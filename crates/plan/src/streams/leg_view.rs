//! The estimate of one leg, by the paper's rules (MGRP §3).
//!
//! *Passive*: when a leg cannot send everything that it should, the achieved rate becomes its known rate. A leg that
//! sends everything shows only a lower bound. So without measurements the known rate of a leg that was once too slow
//! never exceeds the rate sent over it (Fig. 17).
//! *Active*: trains measure the rate that is free beside all traffic. This rate plus the rate of the leg's own streams
//! at that time is the known rate; it may be higher or lower than before (Fig. 18 and 19).

use std::{collections::VecDeque, time::Duration};
use thalweg_units::Time;

/// The seconds over which a leg's sent rate is averaged; one says little on a lossy path.
pub const SECONDS: usize = 3;

/// The number of limited seconds among the last [`SECONDS`] that make a leg too slow.
pub const LIMITED_SECONDS: usize = 2;

/// How long sent rates are remembered: the longest measurement (the paper ends pathload after 60 s).
pub const MEMORY: Duration = Duration::from_secs(65);

/// The most reports that are remembered.
const MOST_SENT: usize = 128;

/// A report of the leg's sender over the last [`SECONDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The sent rate of all streams together, bit/s.
    pub bps: u64,
    /// Whether it could not send everything that it should, beyond reasonable buffering.
    pub is_limited: bool,
    /// The end of the reported time.
    pub at: Time,
}

/// The result of trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trains {
    /// The rate that is free beside all traffic, bit/s, as the tool reports it: pathload's value, not its range.
    pub free: u64,
    /// Whether more may be free, because trains cannot be sent at a higher rate.
    pub at_least: bool,
    pub began: Time,
    pub ended: Time,
}

/// The source of a known rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The leg could not send more.
    Passive,
    /// Trains measured it.
    Active,
}

/// The known rate of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownRate {
    /// For all streams together, bit/s.
    pub bps: u64,
    /// How it became known.
    pub source: Source,
    pub at: Time,
}

/// The rules by which estimates limit levels, for the oracle's plans and for a node's own choices alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// The share of the known rate that a leg may keep. TCP needs some of the rest, and rates of video vary.
    pub headroom: f64,
    /// The share up to which a leg may be filled, so that a slightly lower estimate lowers nobody.
    pub fill: f64,
    /// The age up to which an estimate may raise a subscriber.
    pub fresh: Duration,
    /// How long a leg that was too slow raises nobody, and how long a lowered subscriber is not raised.
    pub hold: Duration,
    /// A rise that is followed by a fall within this time has failed, and doubles the hold of its subscriber.
    pub probation: Duration,
    pub max_hold: Duration,
    /// How long reports of a slow leg are ignored after a change, while the queue of the old level empties. This is
    /// also the longest time that they are ignored without a break; otherwise a plan that often changes would hide a
    /// slow leg.
    pub settle: Duration,
    /// How long a leg counts as too slow without news; `None`: for ever.
    pub forget: Option<Duration>,
}

impl Default for Rules {
    /// 93 and 88 %; 20 s, because the paper's measurements take 10 to 30 s; 3 s; 10 s, so that a policer with a larger
    /// burst lowers the level for at most a fourth of the time; 2 min; 2 s; never, as in the paper.
    fn default() -> Self {
        Self {
            headroom: 0.93,
            fill: 0.88,
            fresh: Duration::from_secs(20),
            hold: Duration::from_secs(3),
            probation: Duration::from_secs(10),
            max_hold: Duration::from_secs(120),
            settle: Duration::from_secs(2),
            forget: None,
        }
    }
}

/// The estimate of one leg.
#[derive(Clone, Debug, Default)]
pub struct LegView {
    known: Option<KnownRate>,
    /// The recently reported rates.
    sent: VecDeque<(Time, u64)>,
    /// When it was last too slow.
    limited: Option<Time>,
    /// When the current series of ignored reports of a too slow leg began.
    ignored: Option<Time>,
    /// When trains last measured it, whatever the result.
    measured: Option<Time>,
    /// When the plan for it was last changed.
    changed: Option<Time>,
}

impl LegView {
    /// Adds a report of its sender. A report that is not newer than the last one is ignored.
    pub fn report(&mut self, sent: Sent, rules: &Rules) {
        if self.sent.back().is_some_and(|(at, _)| *at >= sent.at) {
            return;
        }
        self.sent.push_back((sent.at, sent.bps));
        while self.sent.len() > MOST_SENT
            || self.sent.front().is_some_and(|(at, _)| sent.at.since(*at) > MEMORY)
        {
            self.sent.pop_front();
        }
        let is_settled = self.changed.is_none_or(|at| sent.at.since(at) >= rules.settle);
        let known = KnownRate { bps: sent.bps, source: Source::Passive, at: sent.at };
        if sent.is_limited {
            let ignored = *self.ignored.get_or_insert(sent.at);
            if is_settled || sent.at.since(ignored) >= rules.settle {
                self.known = Some(known);
                self.limited = Some(sent.at);
                self.ignored = None;
            }
            return;
        }
        self.ignored = None;
        if self.known.is_some_and(|known| sent.bps > known.bps) {
            self.known = Some(known);
        }
    }

    /// Adds a measurement. One that began before the leg was found too slow spans both states and is ignored.
    pub fn add_trains(&mut self, found: Trains) {
        self.measured = self.measured.max(Some(found.ended));
        let is_of_before = self.limited.is_some_and(|at| found.began < at);
        let is_old = self.known.is_some_and(|known| found.ended < known.at);
        if is_of_before || is_old {
            return;
        }
        let bps = found.free.saturating_add(self.sent_between(found.began, found.ended));
        let is_more = self.known.is_none_or(|known| bps >= known.bps);
        if !found.at_least || is_more {
            self.known = Some(KnownRate { bps, source: Source::Active, at: found.ended });
        }
    }

    /// Forgets what is known only because it was too slow; measurements stay.
    pub fn forget_passive(&mut self) {
        self.known = self.known.filter(|known| known.source == Source::Active);
        (self.limited, self.ignored) = (None, None);
    }

    /// The mean rate of its streams between these times, bit/s; without a report in between, that of the report
    /// before.
    fn sent_between(&self, began: Time, ended: Time) -> u64 {
        let during = self.sent.iter().filter(|(at, _)| (began..=ended).contains(at));
        let (sum, count) = during.fold((0, 0), |(sum, count), (_, bps)| (sum + bps, count + 1));
        let before = self.sent.iter().rev().find(|(at, _)| *at <= ended);
        match count {
            0 => before.map_or(0, |(_, bps)| *bps),
            _ => sum / count,
        }
    }

    /// When trains last measured it, whatever the result.
    pub const fn measured(&self) -> Option<Time> {
        self.measured
    }

    /// Whether it was too slow after trains last measured it.
    pub fn is_outdated(&self) -> bool {
        let is_newer = |at| self.measured.is_none_or(|measured| at > measured);
        self.known.is_some_and(|known| known.source == Source::Passive && is_newer(known.at))
    }

    /// Records a change of what the plan sends over the leg. Varying rates of the same parts are no change.
    pub fn changed(&mut self, now: Time) {
        self.changed = Some(now);
    }

    /// Its known rate; `None` if it has never been too slow or measured.
    pub fn known(&self, now: Time, rules: &Rules) -> Option<KnownRate> {
        let is_forgotten = |known: &KnownRate| {
            let is_old = |after| now.since(known.at) >= after;
            known.source == Source::Passive && rules.forget.is_some_and(is_old)
        };
        self.known.filter(|known| !is_forgotten(known))
    }

    /// Whether nothing is known of it.
    pub fn is_unknown(&self, now: Time, rules: &Rules) -> bool {
        self.known(now, rules).is_none() && self.sent.iter().all(|(_, bps)| *bps == 0)
    }

    /// The rate that a plan may send over it, bit/s, given the present load; never more than the known rate times the
    /// headroom. `None`: no limit is known.
    pub fn limit(&self, carries: u64, now: Time, rules: &Rules) -> Option<u64> {
        let known = self.known(now, rules)?;
        let share = |share: f64| (known.bps as f64 * share) as u64;
        Some(share(rules.fill).max(carries.min(share(rules.headroom))))
    }

    /// Whether its estimate may raise a subscriber.
    pub fn may_lift(&self, now: Time, rules: &Rules) -> bool {
        let is_held = self.limited.is_some_and(|at| now.since(at) < rules.hold);
        let is_fresh =
            |known: KnownRate| known.source == Source::Active && now.since(known.at) <= rules.fresh;
        !is_held && self.known(now, rules).is_some_and(is_fresh)
    }
}
