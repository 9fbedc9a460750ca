//! When each member last asked for the roster.

use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};
use thalweg_units::NodeId;
use thalweg_wire::mesh::{Member, MemberStatus, Roster};

/// The last request of each member, by principal. Only members have an entry, so their number bounds the map.
#[derive(Debug, Default)]
pub(crate) struct Sightings(Mutex<HashMap<NodeId, Sighting>>);

#[derive(Clone, Copy, Debug)]
struct Sighting {
    at: Instant,
    version: u64,
}

impl Sightings {
    /// Forgets keys that no longer belong to a member.
    pub fn retain(&self, roster: &Roster) {
        let members: HashSet<_> = roster.members.iter().map(Member::principal).collect();
        self.0.lock().retain(|key, _| members.contains(key));
    }

    /// Records that the member has this version. Returns the version recorded before.
    pub fn note(&self, member: &Member, version: u64) -> Option<u64> {
        let sighting = Sighting { at: Instant::now(), version };
        self.0.lock().insert(member.principal(), sighting).map(|last| last.version)
    }

    /// When and with which version the member was seen last.
    pub fn of(&self, member: &Member) -> MemberStatus {
        let seen = self.0.lock().get(&member.principal()).copied();
        MemberStatus {
            name: member.name.clone(),
            seen: seen.map(|seen| seen.at.elapsed()),
            version: seen.map(|seen| seen.version),
        }
    }
}
