//! Counts the bytes that a ring holds, and their peak.

/// Bytes in the ring and in overflows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeldBytes {
    ring: usize,
    begun: usize,
    peak: usize,
}

impl HeldBytes {
    /// A frame enters the ring. `overwritten` is the number of overwritten bytes that are still offered to sockets.
    pub(super) fn add_frame(&mut self, bytes: usize, overwritten: usize) {
        self.ring += bytes;
        self.note(overwritten);
    }

    /// A frame leaves the ring.
    pub(super) fn remove_frame(&mut self, bytes: usize) {
        self.ring = self.ring.saturating_sub(bytes);
    }

    /// A socket begins a buffer of this length (0: none). `overwritten` as for [`Self::add_frame`].
    pub(super) fn begin_buffer(&mut self, bytes: usize, overwritten: usize) {
        self.begun += bytes;
        self.note(overwritten);
    }

    /// A socket has taken the last byte of its buffer, or is gone.
    pub(super) fn end_buffer(&mut self, bytes: usize) {
        self.begun = self.begun.saturating_sub(bytes);
    }

    pub(super) fn peak(&self) -> usize {
        self.peak
    }

    fn note(&mut self, overwritten: usize) {
        self.peak = self.peak.max(self.ring + self.begun + overwritten);
    }
}
