//! One reader of a ring.

use super::ChildStatus;
use crate::have::HaveSet;

/// A frame in the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) block: u32,
    pub(super) length: usize,
}

/// A child: its place in the ring, and the rest of the symbol that its socket has begun.
#[derive(Clone, Debug)]
pub(super) struct Child {
    /// The sequence number of the next frame to send; never one it does not want.
    pub(super) next: u64,
    /// Blocks it is done with.
    pub(super) done: HaveSet,
    pub(super) counts: ChildStatus,
    overflow: Vec<u8>,
    /// Bytes of the overflow that the socket took.
    taken: usize,
}

impl Child {
    pub(super) fn new(next: u64, done: HaveSet, frame_bytes: usize) -> Self {
        let overflow = Vec::with_capacity(frame_bytes);
        Self { next, done, counts: ChildStatus::default(), overflow, taken: 0 }
    }

    /// What its socket must take before anything else.
    pub(super) fn rest(&self) -> &[u8] {
        &self.overflow[self.taken..]
    }

    /// The socket took up to `n` bytes of the rest; how many are left for frames.
    pub(super) fn take_rest(&mut self, n: usize) -> usize {
        let now = n.min(self.rest().len());
        self.taken += now;
        self.counts.sent_bytes += now as u64;
        n - now
    }

    /// The socket took up to `n` bytes of this frame: keeps the rest. How many it took.
    pub(super) fn take_frame(&mut self, frame: &[u8], n: usize) -> usize {
        let now = n.min(frame.len());
        self.overflow.clear();
        self.overflow.extend_from_slice(&frame[now..]);
        self.taken = 0;
        self.next += 1;
        self.counts.sent_symbols += 1;
        self.counts.sent_bytes += now as u64;
        now
    }

    /// The frame at its cursor is overwritten.
    pub(super) fn miss(&mut self) {
        self.next += 1;
        self.counts.missed_symbols += 1;
    }
}
