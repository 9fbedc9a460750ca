//! Which symbols a receiver asks of which parent, if several parents store what they receive.
//!
//! Every symbol is asked of one parent at a time, so nothing comes twice and the parents'
//! rates add up (ROMA §IV-D, without codes: the parents say what they hold). Each parent has
//! a window of asks of twice its rate times its round trip. What was asked of a parent that
//! is gone is asked of others; at the end, symbols asked of a parent that is much slower are
//! asked of a second one, within a bound.

mod asks;
mod meter;
mod parent;
mod tail;

use crate::{geometry::Geometry, have::HaveSet};
use parent::Parent;
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
