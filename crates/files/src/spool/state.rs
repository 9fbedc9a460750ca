//! The index of the spool: sizes and ages of its entries. Pure: the time is an argument.

use super::entry::Label;
use std::{collections::BTreeMap, time::Duration};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::object::{Failure, JobId, SpoolId};

/// Disk space of an entry beside its data: a block of the file system and the first parts of its label.
pub(super) const ENTRY_OVERHEAD: u64 = 4096;

/// The lifetime of an entry; collections take hours.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);

/// An owner without an open channel for this long is absent: its transfer is dead. A network outage usually ends
/// sooner.
const MAX_ABSENCE: Duration = Duration::from_secs(600);

/// The sizes and the age of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexEntry {
    /// The disk space reserved for it, bytes.
    reserved: u64,
    /// The bytes of data that have arrived.
    received: u64,
    since: WallTime,
    whole: bool,
}

/// The bytes of a job: now and at its peak.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    now: u64,
    most: u64,
}

/// The number of an owner's open channels, and when the last one was closed.
#[derive(Clone, Copy, Debug)]
struct Presence {
    channels: usize,
    left: WallTime,
}

/// All entries, with sums by job and by owner.
#[derive(Debug)]
pub(super) struct Index {
    entries: BTreeMap<(NodeId, SpoolId), IndexEntry>,
    sums: BTreeMap<(NodeId, JobId), Sum>,
    owners: BTreeMap<NodeId, Presence>,
    /// The disk space reserved for all entries, bytes.
    used: u64,
    /// The disk space reserved for the entries of each owner, bytes.
    of_owner: BTreeMap<NodeId, u64>,
    /// The start of the process: owners without a channel since then count as absent since then.
    start: WallTime,
}

impl Index {
    /// Creates an empty index.
    pub fn new(start: WallTime) -> Self {
        let (entries, sums, owners) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { entries, sums, owners, used: 0, of_owner: BTreeMap::new(), start }
    }

    /// Whether an entry has not expired.
    pub fn is_young(&self, since: WallTime, now: WallTime) -> bool {
        elapsed(since, now) < MAX_AGE
    }

    /// Adds a complete entry of this length that was found on disk.
    pub fn add_existing(&mut self, label: &Label, length: u64) {
        let entry = IndexEntry {
            reserved: length + ENTRY_OVERHEAD,
            received: 0,
            since: label.since,
            whole: true,
        };
        self.add(label.owner, entry.reserved);
        self.entries.insert((label.owner, label.id), entry);
        self.record_received(label, label.bytes());
    }

    /// Begins an entry. Returns false if there is no room for all of its bytes now. Room is only taken as bytes arrive
    /// ([`Self::take`]), so that an announcement without data takes none.
    ///
    /// # Errors
    /// [`Failure::System`] if the owner has an entry with this id.
    pub fn begin(&mut self, label: &Label, bytes: u64, bound: u64) -> Result<bool, Failure> {
        let key = (label.owner, label.id);
        if self.entries.contains_key(&key) {
            return Err(Failure::System("the spool already has an entry with this id".to_owned()));
        }
        let reserved = ENTRY_OVERHEAD + label.note.len() as u64;
        if !self.has_room(label.owner, bytes.saturating_add(reserved), bound) {
            return Ok(false);
        }
        self.add(label.owner, reserved);
        let entry = IndexEntry { reserved, received: 0, since: label.since, whole: false };
        self.entries.insert(key, entry);
        Ok(true)
    }

    /// Takes room for more bytes of an entry. Returns false if there is none.
    pub fn take(&mut self, label: &Label, bytes: u64, bound: u64) -> bool {
        let has_room = self.has_room(label.owner, bytes, bound);
        if let (true, Some(entry)) = (has_room, self.entries.get_mut(&(label.owner, label.id))) {
            entry.reserved += bytes;
            self.add(label.owner, bytes);
        }
        has_room
    }

    /// Whether there is room for `more` bytes of an owner. No owner gets more than it leaves free: a single owner gets
    /// half of the bound, and there is always something left for the next one.
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

    /// Adds data that has arrived for an entry.
    pub fn record_received(&mut self, label: &Label, bytes: u64) {
        if let Some(entry) = self.entries.get_mut(&(label.owner, label.id)) {
            entry.received += bytes;
        }
        let sum = self.sums.entry((label.owner, label.id.job)).or_default();
        sum.now += bytes;
        sum.most = sum.most.max(sum.now);
    }

    /// Marks an entry as complete; its file has this length.
    pub fn record_finished(&mut self, label: &Label, length: u64) {
        if let Some(entry) = self.entries.get_mut(&(label.owner, label.id)) {
            let reserved = std::mem::replace(&mut entry.reserved, length + ENTRY_OVERHEAD);
            entry.whole = true;
            self.add(label.owner, length + ENTRY_OVERHEAD);
            self.subtract(label.owner, reserved);
        }
    }

    /// Removes an entry. Returns whether it was complete, so that it has a file under its final name.
    pub fn remove(&mut self, owner: NodeId, id: SpoolId) -> bool {
        let Some(entry) = self.entries.remove(&(owner, id)) else { return false };
        self.subtract(owner, entry.reserved);
        if let Some(sum) = self.sums.get_mut(&(owner, id.job)) {
            sum.now = sum.now.saturating_sub(entry.received);
        }
        entry.whole
    }

    /// Whether the entry exists and is complete.
    pub fn is_whole(&self, owner: NodeId, id: SpoolId) -> bool {
        self.entries.get(&(owner, id)).is_some_and(|entry| entry.whole)
    }

    /// The disk space reserved for all entries, bytes.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// The number of entries.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// The peak of a job: the most bytes held for it at a time.
    pub fn peak(&self, owner: NodeId, job: JobId) -> u64 {
        self.sums.get(&(owner, job)).map_or(0, |sum| sum.most)
    }

    /// Resets the peak of a job.
    pub fn reset_peak(&mut self, owner: NodeId, job: JobId) {
        if let Some(sum) = self.sums.get_mut(&(owner, job)) {
            sum.most = sum.now;
            if sum.now == 0 {
                self.sums.remove(&(owner, job));
            }
        }
    }

    /// The complete entries of a job.
    pub fn entries_of_job(&self, owner: NodeId, job: JobId) -> Vec<SpoolId> {
        let ends = [0, u64::MAX].map(|number| (owner, SpoolId { job, number }));
        let found = self.entries.range(ends[0]..=ends[1]);
        found.filter(|(_, entry)| entry.whole).map(|((_, id), _)| *id).collect()
    }

    /// Records that a channel of this owner was opened.
    pub fn enter(&mut self, owner: NodeId) {
        let absent = Presence { channels: 0, left: self.start };
        self.owners.entry(owner).or_insert(absent).channels += 1;
    }

    /// Records that a channel of this owner was closed.
    pub fn leave(&mut self, owner: NodeId, now: WallTime) {
        if let Some(presence) = self.owners.get_mut(&owner) {
            presence.channels = presence.channels.saturating_sub(1);
            presence.left = now;
        }
    }

    /// Returns the complete entries that are expired or whose owner is absent. Forgets absent owners without entries,
    /// and sums without bytes of such owners.
    pub fn take_expired(&mut self, now: WallTime) -> Vec<(NodeId, SpoolId)> {
        let start = self.start;
        let gone = |owner: &NodeId| match self.owners.get(owner) {
            Some(presence) => presence.channels == 0 && elapsed(presence.left, now) > MAX_ABSENCE,
            None => elapsed(start, now) > MAX_ABSENCE,
        };
        let old = |entry: &IndexEntry| elapsed(entry.since, now) >= MAX_AGE;
        let is_old = |((owner, _), entry): &(&(NodeId, SpoolId), &IndexEntry)| {
            entry.whole && (old(entry) || gone(owner))
        };
        let found = self.entries.iter().filter(is_old).map(|(key, _)| *key).collect();
        let entries = &self.entries;
        let holds = |owner: &NodeId| {
            let from = (*owner, SpoolId { job: JobId([0; 16]), number: 0 });
            entries.range(from..).next().is_some_and(|((of, _), _)| of == owner)
        };
        let silent = |p: &Presence| p.channels == 0 && elapsed(p.left, now) > MAX_ABSENCE;
        self.owners.retain(|owner, presence| !silent(presence) || holds(owner));
        let owners = &self.owners;
        self.sums.retain(|(owner, _), sum| sum.now > 0 || owners.contains_key(owner));
        found
    }
}

/// The time from `then` to `now`; 0 if the clock was set back.
fn elapsed(then: WallTime, now: WallTime) -> Duration {
    Duration::from_nanos(now.as_unix_nanos().saturating_sub(then.as_unix_nanos()))
}
