//! Turns for long work: each member's requests run one at a time, however many channels it uses.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};
use thalweg_wire::mesh::Name;

/// The turns of all members with work.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<BTreeMap<Name, Weak<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// The lock for a member's work.
    pub fn for_member(&self, member: &Name) -> Arc<tokio::sync::Mutex<()>> {
        let mut all = self.0.lock();
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
        let [one, other] = ["a", "b"].map(|name| turns.for_member(&name.parse().unwrap()));
        let held = one.try_lock_owned().unwrap();
        assert!(
            turns.for_member(&"a".parse().unwrap()).try_lock().is_err() && other.try_lock().is_ok()
        );
        drop(held);
        assert!(turns.for_member(&"a".parse().unwrap()).try_lock().is_ok());
    }
}
