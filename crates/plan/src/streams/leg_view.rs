//! What is known of one leg, by the paper's rules (MGRP §3).
//!
//! *Passive*: a leg that could not send what it should makes the rate that it achieved its known rate. A leg that sent all
//! shows that so much fits, and no more. So by reports alone the known rate of a leg that was once too slow never
//! becomes larger than what is sent over it (Fig. 17).
//! *Active*: trains find what is free beside all that travels; with what the leg's own streams sent meanwhile that is its
//! known rate, larger or smaller (Fig. 18 and 19).

use std::{collections::VecDeque, time::Duration};
use thalweg_units::Time;

/// What was sent is remembered for so long: the longest measurement (the paper ends pathload after 60 s).
const MEMORY: Duration = Duration::from_secs(65);

/// And so many reports of it.
const MOST_SENT: usize = 128;

/// What a leg's sender says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Of all streams together, bit/s.
    pub bps: u64,
    /// Whether it could not send what it should, beyond reasonable buffering.
    pub is_limited: bool,
    /// When the time that it speaks of ended.
    pub at: Time,
}

/// What trains found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trains {
    /// Free beside all that travels, bit/s; the lower end of a range.
    pub free: u64,
    /// Whether more may be free: they cannot be sent faster.
    pub at_least: bool,
    /// When they began.
    pub began: Time,
    /// When they ended.
    pub ended: Time,
}

/// How a rate became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The leg could not send more.
    Passive,
    /// Trains measured it.
    Active,
}

/// The known rate of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// For all streams together, bit/s.
    pub bps: u64,
    /// How it became known.
    pub source: Source,
    /// When.
    pub at: Time,
}

/// How what is known becomes what may be planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Of the known rate a leg may keep so much: TCP needs some of the rest, and rates of video vary.
    pub headroom: f64,
    /// And be filled up to so much: an estimate that is a little lower the next time then lowers nobody.
    pub fill: f64,
    /// An older estimate lifts nobody.
    pub fresh: Duration,
    /// A leg that was too slow lifts nobody for so long, and a subscriber that was lowered is not lifted.
    pub hold: Duration,
    /// After a change what a leg reports is not believed for so long: the old level's queue empties first.
    pub settle: Duration,
    /// A leg that was too slow, and of which nothing else was heard for so long, is tried again; `None`: never.
    pub forget: Option<Duration>,
}

impl Default for Rules {
    /// 93 and 88 %; 20 s, since the paper's measurements take 10 to 30 s; 3 s; 2 s; never, as in the paper.
    fn default() -> Self {
        Self {
            headroom: 0.93,
            fill: 0.88,
            fresh: Duration::from_secs(20),
            hold: Duration::from_secs(3),
            settle: Duration::from_secs(2),
            forget: None,
        }
    }
}

/// What is known of one leg.
#[derive(Clone, Debug, Default)]
pub struct LegView {
    known: Option<Known>,
    /// The most that was sent without being the limit, of late.
    sent: VecDeque<(Time, u64)>,
    /// The last time that it was too slow.
    limited: Option<Time>,
    /// When trains last measured it, whatever they found.
    measured: Option<Time>,
    /// The last time that what is sent over it was changed.
    changed: Option<Time>,
}

impl LegView {
    /// Its sender has reported. A report that is not newer than the last one is passed over.
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
        let known = Known { bps: sent.bps, source: Source::Passive, at: sent.at };
        if sent.is_limited {
            if is_settled {
                self.known = Some(known);
                self.limited = Some(sent.at);
            }
        } else if self.known.is_some_and(|known| sent.bps > known.bps) {
            self.known = Some(known);
        }
    }

    /// Adds what trains found. Those that began before the leg was found too slow tell of two states at once, and
    /// count for nothing.
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
            self.known = Some(Known { bps, source: Source::Active, at: found.ended });
        }
    }

    /// What its streams sent in this time on average, bit/s; of a time without a report the last one before.
    fn sent_between(&self, began: Time, ended: Time) -> u64 {
        let during = self.sent.iter().filter(|(at, _)| (began..=ended).contains(at));
        let (sum, count) = during.fold((0, 0), |(sum, count), (_, bps)| (sum + bps, count + 1));
        let before = self.sent.iter().rev().find(|(at, _)| *at <= ended);
        match count {
            0 => before.map_or(0, |(_, bps)| *bps),
            _ => sum / count,
        }
    }

    /// When trains last measured it, whatever they found.
    pub const fn measured(&self) -> Option<Time> {
        self.measured
    }

    /// What is sent over it has been changed.
    pub fn changed(&mut self, now: Time) {
        self.changed = Some(now);
    }

    /// The rate that it is known to have; `None`: it has never been too slow, and never been measured.
    pub fn known(&self, now: Time, rules: &Rules) -> Option<Known> {
        let is_forgotten = |known: &Known| {
            let is_old = |after| now.since(known.at) >= after;
            known.source == Source::Passive && rules.forget.is_some_and(is_old)
        };
        self.known.filter(|known| !is_forgotten(known))
    }

    /// Whether nothing at all is known of it.
    pub fn is_unknown(&self, now: Time, rules: &Rules) -> bool {
        self.known(now, rules).is_none() && self.sent.iter().all(|(_, bps)| *bps == 0)
    }

    /// What a plan may send over it, bit/s, given what it is to carry now; never more than the known rate times the
    /// headroom. `None`: no limit is known.
    pub fn limit(&self, carries: u64, now: Time, rules: &Rules) -> Option<u64> {
        let known = self.known(now, rules)?;
        let share = |share: f64| (known.bps as f64 * share) as u64;
        Some(share(rules.fill).max(carries.min(share(rules.headroom))))
    }

    /// Whether a subscriber may get more than now because of what is known of it.
    pub fn may_lift(&self, now: Time, rules: &Rules) -> bool {
        let is_held = self.limited.is_some_and(|at| now.since(at) < rules.hold);
        let is_fresh =
            |known: Known| known.source == Source::Active && now.since(known.at) <= rules.fresh;
        !is_held && self.known(now, rules).is_some_and(is_fresh)
    }
}
