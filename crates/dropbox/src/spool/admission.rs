//! Admits pushes within three limits: concurrent pushes, bytes of the box, and space on the disk.
//!
//! All limits are checked and claimed under one lock, so that two pushes never get the same space.

use super::{Spool, State};
use std::{fs, path::Path, time::SystemTime};
use thalweg_units::NodeId;
use thalweg_wire::bistro::{Load, Refusal, StampId};

/// The maximum number of concurrent pushes; each has a buffer of a megabyte.
const PUSHES: usize = 256;

/// The maximum number of concurrent pushes of one key. A further one is refused as busy, and the client tries the next
/// node.
const PUSHES_EACH: usize = 8;

/// Disk space left free for the host, bytes: enough for the filesystem to work and for an administrator to log in.
const HOST_ROOM: u64 = 64 << 20;

/// The state of a push under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActivePush {
    /// The key of the client.
    client: NodeId,
    /// The total size of its data, bytes.
    pub bytes: u64,
    /// The bytes already written; the others still need space on the disk.
    here: u64,
}

/// The right to receive one submission; exclusive while it exists.
#[derive(Debug)]
pub(crate) struct PushPermit<'a> {
    spool: &'a Spool,
    id: StampId,
}

impl PushPermit<'_> {
    /// Counts bytes written to the disk.
    pub fn record_written(&self, bytes: u64) {
        if let Some(push) = self.spool.lock().active_pushes.get_mut(&self.id) {
            push.here += bytes;
        }
    }
}

impl Drop for PushPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.spool.lock();
        if let Some(push) = state.active_pushes.remove(&self.id) {
            state.bytes -= push.bytes;
        }
        let (files, is_held) = (&self.spool.files, state.held.contains_key(&self.id));
        let size = |file: &Path| fs::metadata(file).map_or(0, |found| found.len());
        let left = match is_held {
            true => 0,
            // The data is complete, but its receipt could not be written.
            false => size(&files.part_path(&self.id)) + size(&files.data_path(&self.id)),
        };
        state.incomplete.insert(self.id, left, SystemTime::now());
    }
}

/// The free bytes of a file's filesystem, minus those left to the host.
pub(super) fn free(data: &Path) -> u64 {
    let free = rustix::fs::statvfs(data);
    free.map_or(0, |f| f.f_bavail.saturating_mul(f.f_frsize).saturating_sub(HOST_ROOM))
}

impl Spool {
    /// The load and the free space of this node.
    ///
    /// The space of incomplete data counts as free here, because the requesting client may be the one that resumes it.
    /// Another client may therefore be refused when it begins to push.
    pub fn load(&self) -> Load {
        let state = self.lock();
        let room = self.free_bytes(&state) + state.incomplete.bytes();
        Load { pushes: state.active_pushes.len() as u32, room }
    }

    /// Free bytes in the box and on its disk, minus those reserved for pushes under way.
    fn free_bytes(&self, state: &State) -> u64 {
        let taken = state.bytes + state.incomplete.bytes();
        // Existing bytes may be damaged and be sent again.
        let to_come = |push: &ActivePush| push.bytes.saturating_sub(push.here);
        let to_come: u64 = state.active_pushes.values().map(to_come).sum();
        let on_disk = (self.free)(self.files.data()).saturating_sub(to_come);
        self.max_total.saturating_sub(taken).min(on_disk)
    }

    /// Claims the right to receive a submission of this size, of which an incomplete part may already be stored.
    pub fn admit(
        &self,
        id: StampId,
        client: NodeId,
        bytes: u64,
    ) -> Result<PushPermit<'_>, Refusal> {
        let mut state = self.lock();
        let own = state.active_pushes.values().filter(|push| push.client == client).count();
        let is_busy = state.active_pushes.contains_key(&id);
        if is_busy || state.active_pushes.len() >= PUSHES || own >= PUSHES_EACH {
            return Err(Refusal::Busy);
        }
        let here = state.incomplete.size_of(&id).min(bytes);
        if bytes - here > self.free_bytes(&state) {
            state.incomplete.remove_expired(&self.files);
        }
        let here = state.incomplete.size_of(&id).min(bytes);
        if bytes - here > self.free_bytes(&state) {
            return Err(Refusal::NoRoom(bytes));
        }
        state.incomplete.remove(&id);
        state.active_pushes.insert(id, ActivePush { client, bytes, here });
        state.bytes += bytes;
        Ok(PushPermit { spool: self, id })
    }
}
