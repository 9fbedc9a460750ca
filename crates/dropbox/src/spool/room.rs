//! Who may push how much: places, bytes of the box, and room on the disk.
//!
//! All of it is looked at and taken under one lock, so that two pushes never take the same room.

use super::{Spool, State};
use std::{fs, path::Path, time::SystemTime};
use thalweg_units::NodeId;
use thalweg_wire::bistro::{Load, Refusal, StampId};

/// Data that is received at a time; each has a buffer of a megabyte.
const PUSHES: usize = 256;

/// Of one key. A further one is refused as busy, and the client tries the next node.
const PUSHES_EACH: usize = 8;

/// Room that is left to the host: what a filesystem needs to work, and its owner to log in.
const HOST_ROOM: u64 = 64 << 20;

/// A push that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiving {
    /// Whose.
    client: NodeId,
    /// All bytes that it brings.
    pub bytes: u64,
    /// Those that are here; the others still need room on the disk.
    here: u64,
}

/// A submission's turn: nobody else receives it meanwhile.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    spool: &'a Spool,
    id: StampId,
}

impl Turn<'_> {
    /// So many bytes more are on the disk.
    pub fn wrote(&self, bytes: u64) {
        if let Some(push) = self.spool.lock().receiving.get_mut(&self.id) {
            push.here += bytes;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.spool.lock();
        if let Some(push) = state.receiving.remove(&self.id) {
            state.bytes -= push.bytes;
        }
        let (files, is_held) = (&self.spool.files, state.held.contains_key(&self.id));
        let size = |file: &Path| fs::metadata(file).map_or(0, |found| found.len());
        let left = match is_held {
            true => 0,
            // Complete, if its receipt could not be written.
            false => size(&files.part_of(&self.id)) + size(&files.of(&self.id)),
        };
        state.parts.leave(self.id, left, SystemTime::now());
    }
}

/// Bytes that may still be written beside a file.
pub(super) fn free(data: &Path) -> u64 {
    let free = rustix::fs::statvfs(data);
    free.map_or(0, |f| f.f_bavail.saturating_mul(f.f_frsize).saturating_sub(HOST_ROOM))
}

impl Spool {
    /// How busy this node is, and how much room it has.
    ///
    /// Parts left behind count as room here, since nobody knows yet who asks: who comes back for one
    /// has room for it; another may be refused when he begins.
    pub fn load(&self) -> Load {
        let state = self.lock();
        let room = self.room(&state) + state.parts.bytes();
        Load { pushes: state.receiving.len() as u32, room }
    }

    /// Bytes for which there is room in the box and on its disk, besides all that was promised.
    fn room(&self, state: &State) -> u64 {
        let taken = state.bytes + state.parts.bytes();
        // What is here may be damaged, and come once more.
        let to_come = |push: &Receiving| push.bytes.saturating_sub(push.here);
        let to_come: u64 = state.receiving.values().map(to_come).sum();
        let on_disk = (self.free)(self.files.data()).saturating_sub(to_come);
        self.max_total.saturating_sub(taken).min(on_disk)
    }

    /// The turn to receive so many bytes of it, with what is here of them already.
    pub fn begin(&self, id: StampId, client: NodeId, bytes: u64) -> Result<Turn<'_>, Refusal> {
        let mut state = self.lock();
        let own = state.receiving.values().filter(|push| push.client == client).count();
        let is_busy = state.receiving.contains_key(&id);
        if is_busy || state.receiving.len() >= PUSHES || own >= PUSHES_EACH {
            return Err(Refusal::Busy);
        }
        let here = state.parts.of(&id).min(bytes);
        if bytes - here > self.room(&state) {
            state.parts.clear(&self.files);
        }
        let here = state.parts.of(&id).min(bytes);
        if bytes - here > self.room(&state) {
            return Err(Refusal::NoRoom(bytes));
        }
        state.parts.take(&id);
        state.receiving.insert(id, Receiving { client, bytes, here });
        state.bytes += bytes;
        Ok(Turn { spool: self, id })
    }
}
