//! Counts the bytes that a ring holds, and their peak.

/// Bytes in the ring and in overflows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    ring: usize,
    begun: usize,
    peak: usize,
}

impl Held {
    /// A frame enters the ring. `lying` is the number of bytes that were overwritten and are still offered to sockets.
    pub(super) fn comes(&mut self, bytes: usize, lying: usize) {
        self.ring += bytes;
        self.note(lying);
    }

    /// A frame leaves the ring.
    pub(super) fn goes(&mut self, bytes: usize) {
        self.ring = self.ring.saturating_sub(bytes);
    }

    /// A socket begins a buffer of this length (0: none). `lying` as for [`Self::comes`].
    pub(super) fn begins(&mut self, bytes: usize, lying: usize) {
        self.begun += bytes;
        self.note(lying);
    }

    /// A socket has taken the last byte of its buffer, or is gone.
    pub(super) fn ends(&mut self, bytes: usize) {
        self.begun = self.begun.saturating_sub(bytes);
    }

    /// The peak.
    pub(super) fn peak(&self) -> usize {
        self.peak
    }

    fn note(&mut self, lying: usize) {
        self.peak = self.peak.max(self.ring + self.begun + lying);
    }
}
