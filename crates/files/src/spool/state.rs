//! What is held, in numbers.

use super::entry::Label;
use std::{collections::BTreeMap, time::Duration};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::object::{Failure, JobId, SpoolId};

/// What an entry takes beside its data: a block of the file system and its label's first parts.
pub(super) const STEP: u64 = 4096;

/// No entry is needed longer: collections take hours.
const OLDEST: Duration = Duration::from_secs(24 * 3600);

/// Whose owner has no channel open for so long is of a dead transfer; a network that is away for a
/// while comes back sooner.
const ABSENT: Duration = Duration::from_secs(600);

/// An entry in numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Bytes that it may take on disk.
    reserved: u64,
    /// Bytes of data that are here.
    came: u64,
    since: WallTime,
    whole: bool,
}

/// Bytes of a collection.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    now: u64,
    most: u64,
}

/// An owner's channels, and since when there is none.
#[derive(Clone, Copy, Debug)]
struct Presence {
    channels: usize,
    left: WallTime,
}

/// All entries in numbers.
#[derive(Debug)]
pub(super) struct Held {
    entries: BTreeMap<(NodeId, SpoolId), Entry>,
    sums: BTreeMap<(NodeId, JobId), Sum>,
    owners: BTreeMap<NodeId, Presence>,
    /// Bytes of all entries, and those of each owner.
    used: u64,
    of_owner: BTreeMap<NodeId, u64>,
    /// Owners that have not come since then are absent since then.
    start: WallTime,
}

impl Held {
    /// Nothing is held.
    pub fn new(start: WallTime) -> Self {
        let (entries, sums, owners) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { entries, sums, owners, used: 0, of_owner: BTreeMap::new(), start }
    }

    /// Whether an entry is to be kept for its age.
    pub fn is_young(&self, since: WallTime, now: WallTime) -> bool {
        lasted(since, now) < OLDEST
    }

    /// A whole entry of this length was found.
    pub fn found(&mut self, label: &Label, length: u64) {
        let entry = Entry { reserved: length + STEP, came: 0, since: label.since, whole: true };
        self.add(label.owner, entry.reserved);
        self.entries.insert((label.owner, label.id), entry);
        self.came(label, label.bytes());
    }

    /// Begins an entry, if there is room for all of its bytes now; they are taken as they come
    /// ([`Self::take`]), so that a promise that nobody keeps holds nothing.
    ///
    /// # Errors
    /// [`Failure::System`] if there is one of this name.
    pub fn begin(&mut self, label: &Label, bytes: u64, bound: u64) -> Result<bool, Failure> {
        let key = (label.owner, label.id);
        if self.entries.contains_key(&key) {
            return Err(Failure::System("the spool has an entry of this name already".to_owned()));
        }
        let reserved = STEP + label.note.len() as u64;
        if !self.has_room(label.owner, bytes.saturating_add(reserved), bound) {
            return Ok(false);
        }
        self.add(label.owner, reserved);
        let entry = Entry { reserved, came: 0, since: label.since, whole: false };
        self.entries.insert(key, entry);
        Ok(true)
    }

    /// Takes room for more of an entry; whether there is any.
    pub fn take(&mut self, label: &Label, bytes: u64, bound: u64) -> bool {
        let has_room = self.has_room(label.owner, bytes, bound);
        if let (true, Some(entry)) = (has_room, self.entries.get_mut(&(label.owner, label.id))) {
            entry.reserved += bytes;
            self.add(label.owner, bytes);
        }
        has_room
    }

    /// No owner gets more than it leaves free: one alone has half of all, and there is always
    /// something left for the next one.
    fn has_room(&self, owner: NodeId, more: u64, bound: u64) -> bool {
        let own = self.of_owner.get(&owner).copied().unwrap_or(0).saturating_add(more);
        let all = self.used.saturating_add(more);
        bound.checked_sub(all).is_some_and(|free| own <= free)
    }

    fn add(&mut self, owner: NodeId, bytes: u64) {
        self.used += bytes;
        *self.of_owner.entry(owner).or_default() += bytes;
    }

    fn subtract(&mut self, owner: NodeId, bytes: u64) {
        self.used -= bytes;
        if let Some(own) = self.of_owner.get_mut(&owner) {
            *own -= bytes;
            if *own == 0 {
                self.of_owner.remove(&owner);
            }
        }
    }

    /// More of its data is here.
    pub fn came(&mut self, label: &Label, bytes: u64) {
        if let Some(entry) = self.entries.get_mut(&(label.owner, label.id)) {
            entry.came += bytes;
        }
        let sum = self.sums.entry((label.owner, label.id.job)).or_default();
        sum.now += bytes;
        sum.most = sum.most.max(sum.now);
    }

    /// It is whole, and its file of this length.
    pub fn finished(&mut self, label: &Label, length: u64) {
        if let Some(entry) = self.entries.get_mut(&(label.owner, label.id)) {
            let reserved = std::mem::replace(&mut entry.reserved, length + STEP);
            entry.whole = true;
            self.add(label.owner, length + STEP);
            self.subtract(label.owner, reserved);
        }
    }

    /// Forgets an entry; whether there was one that is whole, with a file of its name.
    pub fn remove(&mut self, owner: NodeId, id: SpoolId) -> bool {
        let Some(entry) = self.entries.remove(&(owner, id)) else { return false };
        self.subtract(owner, entry.reserved);
        if let Some(sum) = self.sums.get_mut(&(owner, id.job)) {
            sum.now = sum.now.saturating_sub(entry.came);
        }
        entry.whole
    }

    /// Whether there is such an entry, and it can be read.
    pub fn is_whole(&self, owner: NodeId, id: SpoolId) -> bool {
        self.entries.get(&(owner, id)).is_some_and(|entry| entry.whole)
    }

    /// Bytes on disk.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// How many entries.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// The most bytes of a collection at a time.
    pub fn most(&self, owner: NodeId, job: JobId) -> u64 {
        self.sums.get(&(owner, job)).map_or(0, |sum| sum.most)
    }

    /// A collection begins anew.
    pub fn forget_most(&mut self, owner: NodeId, job: JobId) {
        if let Some(sum) = self.sums.get_mut(&(owner, job)) {
            sum.most = sum.now;
            if sum.now == 0 {
                self.sums.remove(&(owner, job));
            }
        }
    }

    /// A collection's whole entries.
    pub fn of_job(&self, owner: NodeId, job: JobId) -> Vec<SpoolId> {
        let ends = [0, u64::MAX].map(|number| (owner, SpoolId { job, number }));
        let found = self.entries.range(ends[0]..=ends[1]);
        found.filter(|(_, entry)| entry.whole).map(|((_, id), _)| *id).collect()
    }

    /// A channel of this owner opens.
    pub fn enter(&mut self, owner: NodeId) {
        let absent = Presence { channels: 0, left: self.start };
        self.owners.entry(owner).or_insert(absent).channels += 1;
    }

    /// One closes.
    pub fn leave(&mut self, owner: NodeId, now: WallTime) {
        if let Some(presence) = self.owners.get_mut(&owner) {
            presence.channels = presence.channels.saturating_sub(1);
            presence.left = now;
        }
    }

    /// The whole entries that are to go; forgets owners and sums that nothing belongs to.
    pub fn too_old(&mut self, now: WallTime) -> Vec<(NodeId, SpoolId)> {
        let start = self.start;
        let gone = |owner: &NodeId| match self.owners.get(owner) {
            Some(presence) => presence.channels == 0 && lasted(presence.left, now) > ABSENT,
            None => lasted(start, now) > ABSENT,
        };
        let old = |entry: &Entry| lasted(entry.since, now) >= OLDEST;
        let is_old = |((owner, _), entry): &(&(NodeId, SpoolId), &Entry)| {
            entry.whole && (old(entry) || gone(owner))
        };
        let found = self.entries.iter().filter(is_old).map(|(key, _)| *key).collect();
        let entries = &self.entries;
        let holds = |owner: &NodeId| {
            let from = (*owner, SpoolId { job: JobId([0; 16]), number: 0 });
            entries.range(from..).next().is_some_and(|((of, _), _)| of == owner)
        };
        let silent = |p: &Presence| p.channels == 0 && lasted(p.left, now) > ABSENT;
        self.owners.retain(|owner, presence| !silent(presence) || holds(owner));
        let owners = &self.owners;
        self.sums.retain(|(owner, _), sum| sum.now > 0 || owners.contains_key(owner));
        found
    }
}

/// From then to now; 0 if the clock was set back.
fn lasted(then: WallTime, now: WallTime) -> Duration {
    Duration::from_nanos(now.as_unix_nanos().saturating_sub(then.as_unix_nanos()))
}
