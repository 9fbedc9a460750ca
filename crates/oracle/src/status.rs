//! When each member last asked for the roster.

use crate::{Caller, Event, Oracle, limits, oracle::Newest};
use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use thalweg_units::NodeId;
use thalweg_wire::mesh::{Member, MemberStatus, Roster, StatusReply};

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
    fn note(&self, member: &Member, version: u64) -> Option<u64> {
        let sighting = Sighting { at: Instant::now(), version };
        self.lock().insert(member.principal(), sighting).map(|last| last.version)
    }

    fn of(&self, member: &Member) -> MemberStatus {
        let seen = self.lock().get(&member.principal()).copied();
        MemberStatus {
            name: member.name.clone(),
            seen: seen.map(|seen| seen.at.elapsed()),
            version: seen.map(|seen| seen.version),
        }
    }
}

impl Oracle {
    /// Notes that a member has this version; if it is above ours, that is told once.
    pub(crate) fn saw(&self, caller: &Caller, version: u64) {
        let newest = self.newest();
        let member = caller.key().and_then(|key| {
            // A command that asks does not make its host's daemon look alive.
            newest.roster.by_key(&key).filter(|m| m.principal() == key)
        });
        let Some(member) = member else { return };
        let last = self.inner.sightings.note(member, version);
        let ours = newest.roster.version;
        if version > ours && last != Some(version) {
            self.tell(&Event::Ahead { name: member.name.clone(), has: version, ours });
        }
    }

    /// Requests that wait for a newer roster now.
    pub fn waiting(&self) -> usize {
        limits::WAITING - self.inner.waiting.available_permits()
    }

    /// Connections for joining, and of strangers, now.
    pub fn strangers(&self) -> usize {
        self.inner.strangers.len()
    }

    /// The oracle's view of the mesh.
    pub fn status(&self) -> StatusReply {
        let Newest { roster, .. } = &*self.newest();
        StatusReply {
            mesh: self.mesh(),
            version: roster.version,
            expiry: roster.expiry,
            time: self.now(),
            members: roster.members.iter().map(|m| self.member_status(m, roster.version)).collect(),
        }
    }

    /// The oracle's own node gets rosters without asking.
    fn member_status(&self, member: &Member, version: u64) -> MemberStatus {
        match member.holds(&self.inner.node) {
            true => MemberStatus {
                name: member.name.clone(),
                seen: Some(Duration::ZERO),
                version: Some(version),
            },
            false => self.inner.sightings.of(member),
        }
    }
}
