//! How many bytes a ring holds, and the most that it ever held.

/// Bytes in the ring and in overflows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    ring: usize,
    begun: usize,
    peak: usize,
}

impl Held {
    /// A frame comes into the ring; so many bytes that went out of it still lie before sockets.
    pub(super) fn comes(&mut self, bytes: usize, lying: usize) {
        self.ring += bytes;
        self.note(lying);
    }

    /// One leaves it.
    pub(super) fn goes(&mut self, bytes: usize) {
        self.ring = self.ring.saturating_sub(bytes);
    }

    /// A socket begins something of so many bytes; of none it begins nothing. `lying` as for [`Self::comes`].
    pub(super) fn begins(&mut self, bytes: usize, lying: usize) {
        self.begun += bytes;
        self.note(lying);
    }

    /// A socket has taken the last of it, or is gone.
    pub(super) fn ends(&mut self, bytes: usize) {
        self.begun = self.begun.saturating_sub(bytes);
    }

    /// The most there ever was.
    pub(super) fn peak(&self) -> usize {
        self.peak
    }

    fn note(&mut self, lying: usize) {
        self.peak = self.peak.max(self.ring + self.begun + lying);
    }
}
