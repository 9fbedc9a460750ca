//! The next symbols to ask of a parent.

use super::{ParentId, Pull, parent::Parent};
use crate::geometry::CHUNK_BYTES;
use rand_core::Rng;
use std::ops::Range;
use thalweg_units::Time;

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

    pub(super) fn ask(&mut self, id: ParentId, run: Range<u64>, now: Time) {
        if let Some(parent) = self.parents.get_mut(&id) {
            parent.asked(run.clone(), now);
        }
        self.taken.insert_range(run.clone()).unwrap_or(0);
        for index in run {
            self.owed.entry(index).or_default().push(id);
        }
    }
}

/// Adds a range, joined to the one before if they touch.
fn push(asks: &mut Vec<Range<u64>>, run: Range<u64>) {
    match asks.last_mut() {
        Some(last) if last.end == run.start => last.end = run.end,
        _ => asks.push(run),
    }
}
