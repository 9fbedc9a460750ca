//! How many legs are served at a time, and to whom.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use thalweg_wire::mesh::Name;

/// Of all members: each costs a task and a socket, and by rings its place in them. A further leg is
/// refused.
const MOST: usize = 1024;

/// Of one: it has one for each cast that it takes from here, and those on their way out. A further
/// leg is refused.
const OF_ONE: usize = 64;

/// By member.
#[derive(Debug, Default)]
pub struct Served(Mutex<BTreeMap<Name, usize>>);

/// A leg is served until this is dropped.
#[derive(Debug)]
pub struct Place(Arc<Served>, Name);

impl Served {
    /// One more, if there is room.
    pub fn begin(self: &Arc<Self>, member: &Name) -> Option<Place> {
        let mut served = self.lock();
        let all: usize = served.values().sum();
        let own = served.get(member).copied().unwrap_or(0);
        if all >= MOST || own >= OF_ONE {
            return None;
        }
        served.insert(member.clone(), own + 1);
        Some(Place(Arc::clone(self), member.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, usize>> {
        // A panic in between leaves whole numbers behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut served = self.0.lock();
        match served.get_mut(&self.1) {
            Some(legs) if *legs > 1 => *legs -= 1,
            _ => _ = served.remove(&self.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_member_leaves_room_for_others() {
        let served = Arc::new(Served::default());
        let name = |text: &str| text.parse::<Name>().unwrap();
        let own: Vec<Option<Place>> = (0..=OF_ONE).map(|_| served.begin(&name("a"))).collect();
        assert_eq!(own.iter().flatten().count(), OF_ONE);
        assert!(served.begin(&name("b")).is_some());
        drop(own);
        assert!(served.begin(&name("a")).is_some());
        assert!(served.lock().is_empty());
    }
}
