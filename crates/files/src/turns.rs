//! Long work of a member comes one after the other, on however many channels it is ordered.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};
use thalweg_wire::mesh::Name;

/// The turns of all members that have work.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<BTreeMap<Name, Weak<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// What a member's work locks.
    pub fn of(&self, member: &Name) -> Arc<tokio::sync::Mutex<()>> {
        // A thread that panicked in here left whole entries.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, turn| turn.strong_count() > 0);
        if let Some(known) = all.get(member).and_then(Weak::upgrade) {
            return known;
        }
        let turn = Arc::default();
        all.insert(member.clone(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_one_turn_at_a_time() {
        let turns = Turns::default();
        let [one, other] = ["a", "b"].map(|name| turns.of(&name.parse().unwrap()));
        let held = one.try_lock_owned().unwrap();
        assert!(turns.of(&"a".parse().unwrap()).try_lock().is_err() && other.try_lock().is_ok());
        drop(held);
        assert!(turns.of(&"a".parse().unwrap()).try_lock().is_ok());
    }
}
