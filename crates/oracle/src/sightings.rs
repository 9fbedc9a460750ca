//! When each member last asked for the roster.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};
use thalweg_units::NodeId;
use thalweg_wire::mesh::{Member, MemberStatus, Roster};

/// By the key that stands for a member; only members are in it, so it is bounded by them.
#[derive(Debug, Default)]
pub(crate) struct Sightings(Mutex<HashMap<NodeId, Sighting>>);

#[derive(Clone, Copy, Debug)]
struct Sighting {
    at: Instant,
    version: u64,
}

impl Sightings {
    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Sighting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets who is no member any more.
    pub fn retain(&self, roster: &Roster) {
        let members: HashSet<_> = roster.members.iter().map(Member::principal).collect();
        self.lock().retain(|key, _| members.contains(key));
    }

    /// The version that was noted before.
    pub fn note(&self, member: &Member, version: u64) -> Option<u64> {
        let sighting = Sighting { at: Instant::now(), version };
        self.lock().insert(member.principal(), sighting).map(|last| last.version)
    }

    pub fn of(&self, member: &Member) -> MemberStatus {
        let seen = self.lock().get(&member.principal()).copied();
        MemberStatus {
            name: member.name.clone(),
            seen: seen.map(|seen| seen.at.elapsed()),
            version: seen.map(|seen| seen.version),
        }
    }
}
