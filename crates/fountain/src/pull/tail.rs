//! The end of a pull: what a slow parent owes is asked of a second one.

use super::{ParentId, Pull};
use std::time::Duration;
use thalweg_units::Time;

impl Pull {
    /// Asks of a parent what another, slower one owes, if it will have it much sooner:
    /// last asked first. Bounded by the spare asks allowed; ascending.
    pub(super) fn tail(&mut self, id: ParentId, room: u64, now: Time) -> Vec<u64> {
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
