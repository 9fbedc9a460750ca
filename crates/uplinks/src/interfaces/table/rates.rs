//! What interfaces bring, second by second, and what is believed of it.

use super::{super::estimate::Load, RESTS, Table};
use std::{collections::BTreeMap, time::Duration};
use thalweg_bond::Candidate;
use thalweg_units::{Rate, Time, WallTime};

/// Into so many parts a second is cut, of which most must have brought something before its rate
/// says anything of the interface.
const PARTS: u32 = 4;

/// What an interface moved since the last tick.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Second {
    down: u64,
    up: u64,
    /// In which parts of it something came.
    parts: u8,
}

/// What goes by an interface beside programs' connections: by links of bonds, and by downloads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flowing {
    /// Bytes both ways since it rested last.
    moved: u64,
    /// Of them when the last second ended.
    before: u64,
    /// When it moved something last.
    active: Time,
}

impl Table {
    /// So many bytes more came and went by an interface, by connections that are no program's.
    pub fn flowed(&mut self, name: &str, more: (u64, u64), now: Time) {
        let Some(index) = self.index_of(name) else { return };
        let since = now.since(self.ticked);
        self.second.entry(index).or_default().add(more, since);
        let new = Flowing { moved: 0, before: 0, active: now };
        let flowing = self.flowing.entry(index).or_insert(new);
        if now.since(flowing.active) >= RESTS {
            *flowing = new;
        }
        flowing.moved = flowing.moved.saturating_add(more.0).saturating_add(more.1);
        flowing.active = now;
    }

    /// What TCP said of one of those, as [`Self::saw`].
    pub fn link_saw(&mut self, name: &str, rtt: Duration, resent: Option<(u64, u64)>, now: Time) {
        if self.present.iter().any(|present| present.name == name) {
            self.heard_of(name.to_owned(), rtt, resent, now);
        }
    }

    pub(super) fn heard_of(
        &mut self,
        name: String,
        rtt: Duration,
        resent: Option<(u64, u64)>,
        now: Time,
    ) {
        let estimate = self.estimates.entry(name).or_default();
        if !rtt.is_zero() {
            estimate.round_trip(rtt, now);
        }
        if let Some(resent) = resent {
            estimate.sent_again(resent, now);
        }
    }

    /// What flows by an interface beside programs' connections is expected to move still: as much again as since it
    /// rested last, as of connections of which nothing else is known.
    pub(super) fn flow(&self, index: u32) -> u64 {
        let flowing = self.flowing.get(&index).filter(|f| self.ticked.since(f.active) < RESTS);
        flowing.map_or(0, |flowing| flowing.moved)
    }

    /// A second or so has passed: estimates are made of what it brought.
    pub fn tick(&mut self, now: Time, today: WallTime) {
        let took = now.since(std::mem::replace(&mut self.ticked, now));
        let lasting = self.lasting();
        for (index, second) in std::mem::take(&mut self.second) {
            // What paused said nothing: nobody asked for more.
            let Some(name) = self.name(index).filter(|_| second.is_busy()) else { continue };
            let (bytes, connections) = lasting.get(&index).copied().unwrap_or_default();
            let all = second.down.saturating_add(second.up);
            let load = match connections {
                _ if bytes < all / 2 => Load::Passing,
                1 => Load::One,
                _ => Load::Several,
            };
            let estimate = self.estimates.entry(name.clone()).or_default();
            estimate.carried((second.down, second.up), load, took, now);
            self.addition.seen(&name, estimate, (now, today));
        }
    }

    /// By interface, what moved in this second by those that had moved something before it and have not ended since,
    /// and how many those are: they had the whole second.
    fn lasting(&mut self) -> BTreeMap<u32, (u64, u32)> {
        let mut lasting: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        for open in self.open.values_mut() {
            let all = open.moved.0.saturating_add(open.moved.1);
            let before = std::mem::replace(&mut open.before, all);
            if before > 0 && all > before {
                let (bytes, connections) = lasting.entry(open.interface).or_default();
                *bytes = bytes.saturating_add(all - before);
                *connections += 1;
            }
        }
        for (index, flowing) in &mut self.flowing {
            let before = std::mem::replace(&mut flowing.before, flowing.moved);
            if before > 0 && flowing.moved > before {
                let name = self.present.iter().find(|p| p.index == *index).map(|p| &p.name);
                let links = name.and_then(|name| self.links.get(name)).copied().unwrap_or(1);
                let (bytes, connections) = lasting.entry(*index).or_default();
                *bytes = bytes.saturating_add(flowing.moved - before);
                *connections += u32::try_from(links).unwrap_or(u32::MAX);
            }
        }
        lasting
    }

    /// Those at these places, with the rates that are believed of each.
    pub(super) fn candidates(&self, places: &[usize], now: Time) -> Vec<Candidate> {
        let candidates = places
            .iter()
            .map(|at| Candidate { rate: self.believed(*at, places, now), ..self.candidate(*at) });
        candidates.collect()
    }

    pub(super) fn candidate(&self, at: usize) -> Candidate {
        let present = &self.present[at];
        let seen = self.estimates.get(&present.name);
        Candidate {
            interface: present.index,
            rate: seen.map(|seen| seen.down()).unwrap_or_default(),
            load: self.load(present.index),
            rtt: seen.map(|seen| seen.rtt()).unwrap_or_default(),
        }
    }

    fn believed(&self, at: usize, places: &[usize], now: Time) -> Rate {
        let estimate = |at: usize| self.estimates.get(&self.present[at].name);
        let Some(own) = estimate(at) else { return Rate::ZERO };
        let others: Vec<_> =
            places.iter().filter(|other| **other != at).filter_map(|at| estimate(*at)).collect();
        let known: Vec<u64> =
            others.iter().filter(|of| of.is_known()).map(|of| of.down().as_bps()).collect();
        let others = match u64::try_from(known.len()) {
            Ok(count @ 1..) => Rate::from_bps(known.iter().sum::<u64>() / count),
            _ => others.iter().map(|of| of.down()).max().unwrap_or_default(),
        };
        own.believed(others, now)
    }
}

impl Second {
    /// So many bytes, to and from this host, so long after it began.
    pub(super) fn add(&mut self, more: (u64, u64), since: Duration) {
        let part = since.as_millis() * u128::from(PARTS) / 1000;
        self.down = self.down.saturating_add(more.0);
        self.up = self.up.saturating_add(more.1);
        self.parts |= 1 << part.min(u128::from(PARTS - 1));
    }

    /// Whether something came most of the time.
    fn is_busy(&self) -> bool {
        self.parts.count_ones() + 1 >= PARTS
    }
}
