//! Which symbols a receiver requests from which parent, if several parents store what they receive (decision 0067).
//!
//! Each symbol is requested from one parent at a time, so nothing arrives twice and the parents' rates add up (ROMA
//! §IV-D, but without codes: the parents announce what they hold). Each parent has a window of outstanding requests of
//! twice its rate times its round trip. Symbols requested from a parent that is gone are requested from others. At the
//! end, symbols that a much slower parent owes are requested from a second one, within a bound.

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

/// A parent, as numbered by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ParentId(pub u64);

/// Settings of a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullSettings {
    /// The number of 1 MiB chunks from the first missing one on that are requested in any order, so that siblings hold
    /// different ones and can serve each other. At least 1.
    pub spread: usize,
    /// The initial window of a parent of unknown rate, in bytes.
    pub first_window: u64,
    /// The maximum window of a parent, in bytes.
    pub max_window: u64,
    /// The minimum time without symbols after which a parent that owes some counts as silent.
    pub silence: Duration,
    /// One of this many symbols may be requested from a second parent.
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

/// The result of an arrived symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiptOutcome {
    /// It was missing.
    Fresh,
    /// It was already held: it was requested from two parents, or arrived otherwise meanwhile.
    Duplicate,
    /// It is not, or no longer, requested from this parent, and is not accepted.
    Unrequested,
    /// It does not exist, or the parent is unknown.
    Unknown,
}

/// The state of a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentStatus {
    /// Its recent rate while it owed symbols; the expected rate until it is measured.
    pub rate: Rate,
    /// Whether the rate was measured.
    pub measured: bool,
    pub rtt: Duration,
    /// Bytes received from it that were missing.
    pub fresh_bytes: u64,
    /// Bytes received from it that were not missing.
    pub duplicate_bytes: u64,
    /// Symbols requested from it that have not arrived yet.
    pub outstanding: u64,
    /// Symbols that it holds.
    pub holds: u64,
}

/// The progress of a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullProgress {
    /// Symbols held.
    pub held: u64,
    /// Symbols of the object.
    pub symbols: u64,
    /// Symbols requested and not held.
    pub asked: u64,
    /// Symbols that arrived twice.
    pub duplicates: u64,
}

/// Schedules requests for the missing symbols of an object.
///
/// Memory: three sets of symbols, one set per parent, and some 100 bytes per requested symbol; the parents' windows
/// bound the number of these.
#[derive(Clone, Debug)]
pub struct Pull {
    geometry: Geometry,
    settings: PullSettings,
    held: HaveSet,
    /// Held or requested.
    taken: HaveSet,
    /// Parents that owe a symbol; at the end there may be two. A held symbol stays until all its requests are answered.
    owed: BTreeMap<u64, Vec<ParentId>>,
    parents: BTreeMap<ParentId, Parent>,
    duplicates: u64,
    /// Outstanding requests for symbols that are already held or requested elsewhere.
    spare: u64,
}

impl Pull {
    /// Creates a pull for an object; `held` is already present.
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

    /// Adds a parent with its expected rate and round trip, zero if unknown. A parent that exists already starts again.
    pub fn join(&mut self, id: ParentId, expected: Rate, rtt: Duration, now: Time) {
        self.leave(id);
        let parent = Parent::new(HaveSet::empty(&self.geometry), expected, rtt, now);
        self.parents.insert(id, parent);
    }

    /// Adds symbols that a parent holds. Symbols that do not exist are ignored.
    pub fn record_held(&mut self, id: ParentId, range: Range<u64>) {
        let end = range.end.min(self.geometry.symbols());
        if let Some(parent) = self.parents.get_mut(&id) {
            // Cannot fail after clipping, unless the range is reversed; a peer may send anything, so that is ignored.
            parent.has.insert_range(range.start.min(end)..end).unwrap_or(0);
        }
    }

    /// Records that a parent no longer holds these symbols. Those that it owes are requested from others.
    pub fn withdraw(&mut self, id: ParentId, range: Range<u64>, now: Time) {
        let Some(parent) = self.parents.get_mut(&id) else { return };
        parent.has.remove_range(range.clone());
        let end = range.end.max(range.start);
        let owed: Vec<u64> =
            parent.outstanding.range(range.start..end).map(|(index, _)| *index).collect();
        owed.into_iter().for_each(|index| self.reject(id, index, now));
    }

    /// Removes a parent, which is gone or given up. What it owes is requested from others. Returns its last state.
    ///
    /// The caller must not accept anything more from it: late symbols would be duplicates.
    pub fn leave(&mut self, id: ParentId) -> Option<ParentStatus> {
        let parent = self.parents.remove(&id)?;
        for index in parent.outstanding.keys() {
            self.release(*index, id);
        }
        Some(parent.status())
    }

    /// Records a verified symbol from a parent.
    pub fn receive(&mut self, id: ParentId, index: u64, now: Time) -> ReceiptOutcome {
        let bytes = self.geometry.bytes_at(index).map(|range| range.end - range.start);
        let (Some(parent), Some(bytes)) = (self.parents.get_mut(&id), bytes) else {
            return ReceiptOutcome::Unknown;
        };
        let asked = parent.record_arrival(index, bytes, now);
        let fresh = asked && !self.held.contains(index);
        parent.count(bytes, fresh);
        if !asked {
            return ReceiptOutcome::Unrequested;
        }
        self.settle(index, id);
        if fresh {
            self.hold_symbol(index);
            return ReceiptOutcome::Fresh;
        }
        self.duplicates += 1;
        ReceiptOutcome::Duplicate
    }

    /// Records that a parent refused a symbol, or sent a wrong one. The symbol is requested again.
    pub fn reject(&mut self, id: ParentId, index: u64, now: Time) {
        if self.parents.get_mut(&id).is_some_and(|parent| parent.record_refusal(index, now)) {
            self.release(index, id);
        }
    }

    /// Records symbols that came otherwise, by decoding or from a ring. Symbols that do not exist are ignored.
    pub fn record_obtained(&mut self, range: Range<u64>) {
        for index in range.start..range.end.min(self.geometry.symbols()) {
            if !self.held.contains(index) {
                self.hold_symbol(index);
            }
        }
    }

    /// Parents that owe symbols and have sent nothing for too long. They should be left.
    pub fn silent_parents(&self, now: Time) -> Vec<ParentId> {
        let size = u64::from(self.geometry.symbol_bytes());
        let silent = |parent: &Parent| parent.is_silent(now, self.settings.silence, size);
        self.parents.iter().filter(|(_, parent)| silent(parent)).map(|(id, _)| *id).collect()
    }

    /// The held symbols.
    pub fn held(&self) -> &HaveSet {
        &self.held
    }

    /// Whether nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.held.is_complete()
    }

    /// The progress of the pull.
    pub fn progress(&self) -> PullProgress {
        PullProgress {
            held: self.held.count(),
            symbols: self.held.symbols(),
            asked: self.taken.count() - self.held.count(),
            duplicates: self.duplicates,
        }
    }

    /// The state of a parent.
    pub fn status(&self, id: ParentId) -> Option<ParentStatus> {
        self.parents.get(&id).map(Parent::status)
    }

    /// The parents, in order.
    pub fn parents(&self) -> impl Iterator<Item = ParentId> {
        self.parents.keys().copied()
    }

    /// Marks a missing symbol as held. Parents that still owe it will send duplicates.
    fn hold_symbol(&mut self, index: u64) {
        // If any parents owe it, exactly one of their requests was not a spare one until now.
        let owing = self.owed.get(&index).map_or(0, |owing| owing.len() as u64);
        self.spare += owing.min(1);
        self.held.insert(index);
        self.taken.insert(index);
    }

    /// Removes a parent from those that owe a symbol, because it sent it.
    fn settle(&mut self, index: u64, id: ParentId) {
        let Some(owing) = self.owed.get_mut(&index) else { return };
        let before = owing.len();
        owing.retain(|owner| *owner != id);
        // If it was requested twice or is held, one of these requests was a spare one.
        if owing.len() < before && (before > 1 || self.held.contains(index)) {
            self.spare = self.spare.saturating_sub(1);
        }
        if owing.is_empty() {
            self.owed.remove(&index);
        }
    }

    /// Like [`Self::settle`], but the parent did not send the symbol.
    fn release(&mut self, index: u64, id: ParentId) {
        self.settle(index, id);
        if !self.owed.contains_key(&index) && !self.held.contains(index) {
            self.taken.remove_range(index..index + 1);
        }
    }
}

/// Selection of the next symbols to request from a parent.
impl Pull {
    /// The ranges of source symbols to request from a parent now; empty if its window is full or it holds nothing that
    /// is missing. Call this when the parent announces symbols, when something has arrived, and about every second.
    ///
    /// Works by chunks of 1 MiB: of the first few chunks that are missing here and held there, it takes the one that
    /// the fewest parents hold, at random among equals.
    pub fn next_requests(
        &mut self,
        id: ParentId,
        now: Time,
        rng: &mut impl Rng,
    ) -> Vec<Range<u64>> {
        let mut room = self.room(id);
        let mut asks = Vec::new();
        while room > 0 {
            let Some(run) = self.next_run(id, rng) else { break };
            let run = run.start..run.end.min(run.start + room);
            room -= run.end - run.start;
            self.ask(id, run.clone(), now);
            push(&mut asks, run);
        }
        // Not earlier: a node that follows its parents closely has nothing to request now and then, and would use up
        // the allowed duplicates before the end.
        if room > 0 && self.taken.is_complete() {
            for index in self.tail(id, room, now) {
                push(&mut asks, index..index + 1);
            }
        }
        asks
    }

    /// The number of symbols that may be requested from a parent now; 0 until a quarter of its window (or a chunk) is
    /// free, so that there are few request messages.
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

    /// Missing symbols of one chunk that are requested from nobody and that this parent holds.
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
        let run = parent.has.difference(&self.taken, unit * size).next()?;
        let end = (unit + 1) * size;
        (run.start < end).then(|| run.start..run.end.min(end))
    }

    /// A chunk of which this parent holds missing symbols.
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

    /// The first symbol that could be requested in each of the next chunks.
    fn candidates(&self, parent: &Parent) -> Vec<u64> {
        let size = self.unit_symbols();
        let from = self.taken.missing().next().map_or(u64::MAX, |run| run.start);
        let mut found: Vec<u64> = Vec::new();
        for run in parent.has.difference(&self.taken, from) {
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
            parent.record_requests(run.clone(), now);
        }
        self.taken.insert_range(run.clone()).unwrap_or(0);
        for index in run {
            self.owed.entry(index).or_default().push(id);
        }
    }
}

/// The end of a pull: symbols that a slow parent owes are requested from a second one.
impl Pull {
    /// Requests from a parent symbols that a slower one owes, if it will deliver them much sooner; the last requested
    /// ones first. Limited by the allowed spare requests. Returns ascending indices.
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

    /// The last symbol owed by the parent that will finish last, if that takes more than twice as long as this parent
    /// would.
    fn late_symbol(&self, id: ParentId, now: Time) -> Option<u64> {
        let size = u64::from(self.geometry.symbol_bytes());
        let own = self.parents.get(&id)?;
        let mine = own.finish_time(size, size, now);
        let mut others: Vec<(Duration, ParentId)> = Vec::new();
        for (other, parent) in self.parents.iter().filter(|(other, _)| **other != id) {
            let theirs = parent.finish_time(0, size, now);
            if !parent.outstanding.is_empty() && theirs > mine.saturating_mul(2) {
                others.push((theirs, *other));
            }
        }
        others.sort_unstable();
        others.iter().rev().find_map(|(_, other)| self.stealable(*other, id))
    }

    /// A symbol that only `owner` owes and `thief` holds.
    fn stealable(&self, owner: ParentId, thief: ParentId) -> Option<u64> {
        let (owner, thief) = (self.parents.get(&owner)?, self.parents.get(&thief)?);
        let single = |index: &u64| {
            let alone = self.owed.get(index).is_some_and(|owing| owing.len() == 1);
            alone && !self.held.contains(*index) && thief.has.contains(*index)
        };
        owner.outstanding.keys().rev().copied().find(single)
    }
}

/// Adds a range, joined with the previous one if they touch.
fn push(asks: &mut Vec<Range<u64>>, run: Range<u64>) {
    match asks.last_mut() {
        Some(last) if last.end == run.start => last.end = run.end,
        _ => asks.push(run),
    }
}
