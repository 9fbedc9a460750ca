//! Streams of a bond beside each other.

use super::Load;

/// What all streams have to send. They take turns, so that each has its part of every link, and neither its end nor the
/// end of its window comes as soon as if it were alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    streams: u64,
    backlog: u64,
    window: u64,
}

impl Crowd {
    /// One more that has so many bytes to send, and so many that the far end still takes.
    pub fn add(&mut self, backlog: u64, window: u64) {
        self.streams += 1;
        self.backlog = self.backlog.saturating_add(backlog);
        self.window = self.window.saturating_add(window);
    }

    /// A stream's load as it is among them: with its own bytes go as many of each other stream, as far as they have any.
    #[must_use]
    pub fn load(&self, own: Load) -> Load {
        let among = |own: u64, all: u64| own.saturating_mul(self.streams).min(all).max(own);
        Load {
            backlog: among(own.backlog, self.backlog),
            window: among(own.window, self.window),
            ..own
        }
    }
}
