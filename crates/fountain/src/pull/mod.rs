//! Which symbols a receiver asks of which parent, if several parents store what they receive
//! (decision 0067).
//!
//! Every symbol is asked of one parent at a time, so nothing comes twice and the parents'
//! rates add up (ROMA §IV-D, without codes: the parents say what they hold). Each parent has
//! a window of asks of twice its rate times its round trip. What was asked of a parent that
//! is gone is asked of others; at the end, symbols asked of a parent that is much slower are
//! asked of a second one, within a bound.

mod meter;
mod parent;

use crate::{
    geometry::{CHUNK_BYTES, Geometry},
    have::HaveSet,
};
use parent::Parent;
use rand_core::Rng;
use std::{collections::BTreeMap, ops::Range, time::Duration};
use thalweg_units::{Rate, Time};

/// A parent, as the shell numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ParentId(pub u64);

/// How a pull goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullSettings {
    /// How many chunks of 1 MiB beyond the first missing one are asked in any order, so that
    /// siblings hold different ones and can serve each other. At least 1.
    pub spread: usize,
    /// Bytes asked of a parent of which nothing is known.
    pub first_window: u64,
    /// Bytes asked of a parent at most.
    pub max_window: u64,
    /// A parent that owes symbols and sends none is silent after this long at least.
    pub silence: Duration,
    /// Of so many symbols one may be asked of a second parent.
    pub symbols_per_spare: u64,
}

impl Default for PullSettings {
    /// 64 chunks; windows from 256 KiB to 64 MiB (10 Gbit/s at 25 ms, twice); 2 s; 1 in 100.
    fn default() -> Self {
        Self {
            spread: 64,
            first_window: 256 << 10,
            max_window: 64 << 20,
            silence: Duration::from_secs(2),
            symbols_per_spare: 100,
        }
    }
}

/// What a symbol that came was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// It was missing.
    Fresh,
    /// It was held already: asked of two parents, or it came otherwise meanwhile.
    Duplicate,
    /// It was not asked of this parent, or is no more: it is not taken.
    Unasked,
    /// It does not exist, or the parent is unknown.
    Unknown,
}

/// How a parent does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentStatus {
    /// Its rate of late while it owed symbols; what was expected until it is measured.
    pub rate: Rate,
    /// Whether the rate was measured.
    pub measured: bool,
    /// Its round trip.
    pub rtt: Duration,
    /// Bytes that it sent and were missing.
    pub fresh_bytes: u64,
    /// Bytes that it sent and were not.
    pub duplicate_bytes: u64,
    /// Symbols asked of it that did not come yet.
    pub outstanding: u64,
    /// Symbols that it holds.
    pub holds: u64,
}

/// How far a pull is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullProgress {
    /// Symbols held.
    pub held: u64,
    /// Symbols of the object.
    pub symbols: u64,
    /// Symbols asked and not held.
    pub asked: u64,
    /// Symbols that came twice.
    pub duplicates: u64,
}

/// Asks for the missing symbols of an object.
///
/// Memory: three sets of symbols, one a parent, and some 100 bytes a symbol that is asked;
/// these are bounded by the parents' windows.
#[derive(Clone, Debug)]
pub struct Pull {
    geometry: Geometry,
    settings: PullSettings,
    held: HaveSet,
    /// Held or asked.
    taken: HaveSet,
    /// Parents that owe a symbol; two at the tail. Symbols that are held stay until all came.
    owed: BTreeMap<u64, Vec<ParentId>>,
    parents: BTreeMap<ParentId, Parent>,
    duplicates: u64,
    /// Asks that will bring what is held or asked elsewhere.
    spare: u64,
}

impl Pull {
    /// For an object of which this is held.
    pub fn new(geometry: Geometry, held: HaveSet, settings: PullSettings) -> Self {
        Self {
            geometry,
            settings,
            taken: held.clone(),
            held,
            owed: BTreeMap::new(),
            parents: BTreeMap::new(),
            duplicates: 0,
            spare: 0,
        }
    }

    /// A parent is there; what rate and round trip to expect, zero if unknown. One that
    /// was there before begins anew.
    pub fn join(&mut self, id: ParentId, expected: Rate, rtt: Duration, now: Time) {
        self.leave(id);
        let parent = Parent::new(HaveSet::empty(&self.geometry), expected, rtt, now);
        self.parents.insert(id, parent);
    }

    /// A parent holds these symbols; what does not exist is passed over.
    pub fn holds(&mut self, id: ParentId, range: Range<u64>) {
        let end = range.end.min(self.geometry.symbols());
        if let Some(parent) = self.parents.get_mut(&id) {
            // In the object, or not added: a neighbour may say anything.
            parent.has.insert_range(range.start.min(end)..end).unwrap_or(0);
        }
    }

    /// A parent no longer holds these symbols: those it owes are asked of others.
    pub fn gone(&mut self, id: ParentId, range: Range<u64>, now: Time) {
        let Some(parent) = self.parents.get_mut(&id) else { return };
        parent.has.remove_range(range.clone());
        let end = range.end.max(range.start);
        let owed: Vec<u64> =
            parent.outstanding.range(range.start..end).map(|(index, _)| *index).collect();
        owed.into_iter().for_each(|index| self.refused(id, index, now));
    }

    /// A parent is gone, or given up: what it owes is asked of others. How it did.
    ///
    /// The shell must take nothing more from it: what comes late would be a duplicate.
    pub fn leave(&mut self, id: ParentId) -> Option<ParentStatus> {
        let parent = self.parents.remove(&id)?;
        for index in parent.outstanding.keys() {
            self.release(*index, id);
        }
        Some(parent.status())
    }

    /// A symbol came from a parent and was verified.
    pub fn arrived(&mut self, id: ParentId, index: u64, now: Time) -> Arrived {
        let bytes = self.geometry.bytes_at(index).map(|range| range.end - range.start);
        let (Some(parent), Some(bytes)) = (self.parents.get_mut(&id), bytes) else {
            return Arrived::Unknown;
        };
        let asked = parent.arrived(index, bytes, now);
        let fresh = asked && !self.held.contains(index);
        parent.count(bytes, fresh);
        if !asked {
            return Arrived::Unasked;
        }
        self.settle(index, id);
        if fresh {
            self.hold_symbol(index);
            return Arrived::Fresh;
        }
        self.duplicates += 1;
        Arrived::Duplicate
    }

    /// A symbol of a parent was not what it should be: it is asked again.
    pub fn refused(&mut self, id: ParentId, index: u64, now: Time) {
        if self.parents.get_mut(&id).is_some_and(|parent| parent.refused(index, now)) {
            self.release(index, id);
        }
    }

    /// Symbols came otherwise, by decoding or from a ring; what does not exist is passed over.
    pub fn obtained(&mut self, range: Range<u64>) {
        for index in range.start..range.end.min(self.geometry.symbols()) {
            if !self.held.contains(index) {
                self.hold_symbol(index);
            }
        }
    }

    /// Parents that owe symbols and sent nothing for long: to be left.
    pub fn silent(&self, now: Time) -> Vec<ParentId> {
        let size = u64::from(self.geometry.symbol_bytes());
        let silent = |parent: &Parent| parent.is_silent(now, self.settings.silence, size);
        self.parents.iter().filter(|(_, parent)| silent(parent)).map(|(id, _)| *id).collect()
    }

    /// The symbols held.
    pub fn held(&self) -> &HaveSet {
        &self.held
    }

    /// Whether nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.held.is_complete()
    }

    /// How far it is.
    pub fn progress(&self) -> PullProgress {
        PullProgress {
            held: self.held.count(),
            symbols: self.held.symbols(),
            asked: self.taken.count() - self.held.count(),
            duplicates: self.duplicates,
        }
    }

    /// How a parent does.
    pub fn status(&self, id: ParentId) -> Option<ParentStatus> {
        self.parents.get(&id).map(Parent::status)
    }

    /// The parents, in order.
    pub fn parents(&self) -> impl Iterator<Item = ParentId> {
        self.parents.keys().copied()
    }

    /// A missing symbol is held now: those who still owe it will send a duplicate.
    fn hold_symbol(&mut self, index: u64) {
        // With nobody or one other left, what was a spare ask is one still, or a new one.
        let owing = self.owed.get(&index).map_or(0, |owing| owing.len() as u64);
        self.spare += owing.min(1);
        self.held.insert(index);
        self.taken.insert(index);
    }

    /// A parent owes a symbol no more, since it sent it.
    fn settle(&mut self, index: u64, id: ParentId) {
        let Some(owing) = self.owed.get_mut(&index) else { return };
        let before = owing.len();
        owing.retain(|owner| *owner != id);
        // Asked twice, or held: one ask of these was to spare.
        if owing.len() < before && (before > 1 || self.held.contains(index)) {
            self.spare = self.spare.saturating_sub(1);
        }
        if owing.is_empty() {
            self.owed.remove(&index);
        }
    }

    /// As [`Self::settle`], but it did not send it.
    fn release(&mut self, index: u64, id: ParentId) {
        self.settle(index, id);
        if !self.owed.contains_key(&index) && !self.held.contains(index) {
            self.taken.remove_range(index..index + 1);
        }
    }
}

/// The next symbols to ask of a parent.
impl Pull {
    /// What to ask of a parent now, as ranges of source symbols; none if its window is full
    /// or it holds nothing that is missing. To be called when the parent said what it holds, when
    /// something arrived, and every second or so.
    ///
    /// By chunks of 1 MiB: of the first few that are missing here and held there, the
    /// one that the fewest parents hold, by lot among these.
    pub fn asks(&mut self, id: ParentId, now: Time, rng: &mut impl Rng) -> Vec<Range<u64>> {
        let mut room = self.room(id);
        let mut asks = Vec::new();
        while room > 0 {
            let Some(run) = self.next_run(id, rng) else { break };
            let run = run.start..run.end.min(run.start + room);
            room -= run.end - run.start;
            self.ask(id, run.clone(), now);
            push(&mut asks, run);
        }
        // Not before: who follows its parents closely has nothing to ask for now and then, and would have
        // used up what may come twice when the end comes.
        if room > 0 && self.taken.is_complete() {
            for index in self.tail(id, room, now) {
                push(&mut asks, index..index + 1);
            }
        }
        asks
    }

    /// Symbols that may be asked of a parent now; 0 until a quarter of its window (or a
    /// chunk) is free, so that asks are few.
    fn room(&self, id: ParentId) -> u64 {
        let size = u64::from(self.geometry.symbol_bytes());
        let Some(parent) = self.parents.get(&id) else { return 0 };
        let window = parent.window(size, &self.settings) / size;
        let free = window.saturating_sub(parent.outstanding.len() as u64);
        let enough = (window / 4).min(self.unit_symbols()).max(1);
        if free >= enough { free } else { 0 }
    }

    fn unit_symbols(&self) -> u64 {
        CHUNK_BYTES / u64::from(self.geometry.symbol_bytes())
    }

    /// Missing symbols of one chunk that nobody was asked for and this parent holds.
    fn next_run(&mut self, id: ParentId, rng: &mut impl Rng) -> Option<Range<u64>> {
        let parent = self.parents.get(&id)?;
        let begun = parent.unit.and_then(|unit| self.run_in(parent, unit));
        if begun.is_some() {
            return begun;
        }
        let unit = self.pick(parent, rng)?;
        let run = self.run_in(parent, unit);
        self.parents.get_mut(&id)?.unit = Some(unit);
        run
    }

    fn run_in(&self, parent: &Parent, unit: u64) -> Option<Range<u64>> {
        let size = self.unit_symbols();
        let run = parent.has.beyond(&self.taken, unit * size).next()?;
        let end = (unit + 1) * size;
        (run.start < end).then(|| run.start..run.end.min(end))
    }

    /// A chunk of which this parent holds something that is missing.
    fn pick(&self, parent: &Parent, rng: &mut impl Rng) -> Option<u64> {
        let candidates = self.candidates(parent);
        let holders = |at: &u64| self.parents.values().filter(|p| p.has.contains(*at)).count();
        let scores: Vec<usize> = candidates.iter().map(holders).collect();
        let fewest = scores.iter().min()?;
        let rare: Vec<u64> =
            candidates.iter().zip(&scores).filter(|(_, s)| *s == fewest).map(|(c, _)| *c).collect();
        let lot = (rng.next_u64() % rare.len() as u64) as usize;
        Some(rare[lot] / self.unit_symbols())
    }

    /// The first symbol that could be asked in each of the next chunks.
    fn candidates(&self, parent: &Parent) -> Vec<u64> {
        let size = self.unit_symbols();
        let from = self.taken.missing().next().map_or(u64::MAX, |run| run.start);
        let mut found: Vec<u64> = Vec::new();
        for run in parent.has.beyond(&self.taken, from) {
            let mut at = run.start;
            while at < run.end {
                if found.len() >= self.settings.spread.max(1) {
                    return found;
                }
                if found.last().is_none_or(|last| last / size != at / size) {
                    found.push(at);
                }
                at = (at / size + 1) * size;
            }
        }
        found
    }

    fn ask(&mut self, id: ParentId, run: Range<u64>, now: Time) {
        if let Some(parent) = self.parents.get_mut(&id) {
            parent.asked(run.clone(), now);
        }
        self.taken.insert_range(run.clone()).unwrap_or(0);
        for index in run {
            self.owed.entry(index).or_default().push(id);
        }
    }
}

/// The end of a pull: what a slow parent owes is asked of a second one.
impl Pull {
    /// Asks of a parent what another, slower one owes, if it will have it much sooner:
    /// last asked first. Bounded by the spare asks allowed; ascending.
    fn tail(&mut self, id: ParentId, room: u64, now: Time) -> Vec<u64> {
        let mut asked = Vec::new();
        while (asked.len() as u64) < room && self.may_spare() {
            let Some(index) = self.late_symbol(id, now) else { break };
            self.ask(id, index..index + 1, now);
            self.spare += 1;
            asked.push(index);
        }
        asked.sort_unstable();
        asked
    }

    fn may_spare(&self) -> bool {
        let allowed = self.geometry.symbols() / self.settings.symbols_per_spare.max(1);
        self.spare + self.duplicates < allowed
    }

    /// The last symbol owed by the parent that finishes last, if it takes more than twice
    /// as long as this one would.
    fn late_symbol(&self, id: ParentId, now: Time) -> Option<u64> {
        let size = u64::from(self.geometry.symbol_bytes());
        let own = self.parents.get(&id)?;
        let mine = own.finishes(size, size, now);
        let mut others: Vec<(Duration, ParentId)> = Vec::new();
        for (other, parent) in self.parents.iter().filter(|(other, _)| **other != id) {
            let theirs = parent.finishes(0, size, now);
            if !parent.outstanding.is_empty() && theirs > mine.saturating_mul(2) {
                others.push((theirs, *other));
            }
        }
        others.sort_unstable();
        others.iter().rev().find_map(|(_, other)| self.stealable(*other, id))
    }

    /// A symbol that `owner` alone owes and `thief` holds.
    fn stealable(&self, owner: ParentId, thief: ParentId) -> Option<u64> {
        let (owner, thief) = (self.parents.get(&owner)?, self.parents.get(&thief)?);
        let single = |index: &u64| {
            let alone = self.owed.get(index).is_some_and(|owing| owing.len() == 1);
            alone && !self.held.contains(*index) && thief.has.contains(*index)
        };
        owner.outstanding.keys().rev().copied().find(single)
    }
}

/// Adds a range, joined to the one before if they touch.
fn push(asks: &mut Vec<Range<u64>>, run: Range<u64>) {
    match asks.last_mut() {
        Some(last) if last.end == run.start => last.end = run.end,
        _ => asks.push(run),
    }
}
