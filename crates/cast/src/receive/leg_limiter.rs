//! Limits the number of legs that are served at a time, in all and per member.

use parking_lot::{Mutex, MutexGuard};
use std::{collections::BTreeMap, sync::Arc};
use thalweg_wire::mesh::Name;

/// The maximum of all members together. Each leg costs a task and a socket, and a stream leg a place in its ring.
/// Further legs are refused.
const MAX_LEGS: usize = 1024;

/// The maximum per member. A member has one leg for each cast that it receives from here, and legs that are closing.
/// Further legs are refused.
const MAX_LEGS_PER_MEMBER: usize = 64;

/// The number of served legs per member.
#[derive(Debug, Default)]
pub struct LegLimiter(Mutex<BTreeMap<Name, usize>>);

/// Counts a leg as served until this is dropped.
#[derive(Debug)]
pub struct LegPermit(Arc<LegLimiter>, Name);

impl LegLimiter {
    /// Counts one more leg, if the limits allow it.
    pub fn begin(self: &Arc<Self>, member: &Name) -> Option<LegPermit> {
        let mut served = self.lock();
        let all: usize = served.values().sum();
        let own = served.get(member).copied().unwrap_or(0);
        if all >= MAX_LEGS || own >= MAX_LEGS_PER_MEMBER {
            return None;
        }
        served.insert(member.clone(), own + 1);
        Some(LegPermit(Arc::clone(self), member.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, usize>> {
        self.0.lock()
    }
}

impl Drop for LegPermit {
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
        let served = Arc::new(LegLimiter::default());
        let name = |text: &str| text.parse::<Name>().unwrap();
        let own: Vec<Option<LegPermit>> =
            (0..=MAX_LEGS_PER_MEMBER).map(|_| served.begin(&name("a"))).collect();
        assert_eq!(own.iter().flatten().count(), MAX_LEGS_PER_MEMBER);
        assert!(served.begin(&name("b")).is_some());
        drop(own);
        assert!(served.begin(&name("a")).is_some());
        assert!(served.lock().is_empty());
    }
}
