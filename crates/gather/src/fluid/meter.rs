//! What a way brings.

use super::worker::Awaited;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thalweg_files::{
    land::LandError,
    remote::{Sink, ToLand},
};

/// Counts of one way; its worker writes, the conductor and the others read.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// All that came.
    bytes: AtomicU64,
    /// What came of the request that is being answered.
    front: AtomicU64,
    /// Bytes/s, of late.
    rate: AtomicU64,
}

impl Meter {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(super) fn front(&self) -> u64 {
        self.front.load(Relaxed)
    }

    /// Bytes/s; 0: nothing is known.
    pub(super) fn rate(&self) -> f64 {
        self.rate.load(Relaxed) as f64
    }

    /// The rate of an interval; half of it is believed.
    pub(super) fn see(&self, rate: f64) {
        let before = self.rate();
        let mean = if before > 0.0 { f64::midpoint(before, rate) } else { rate };
        self.rate.store(mean as u64, Relaxed);
    }

    /// The rate of a request: it is as fast at least.
    pub(super) fn see_at_least(&self, rate: f64) {
        self.rate.fetch_max(rate as u64, Relaxed);
    }

    pub(super) fn next_request(&self) {
        self.front.store(0, Relaxed);
    }
}

/// Counts bytes as they come; they land once they are proven.
pub(super) struct Metered<'a> {
    pub(super) land: ToLand<'a>,
    pub(super) meter: &'a Meter,
    pub(super) parcel: Awaited<'a>,
}

impl Sink for Metered<'_> {
    fn take(
        &mut self,
        index: usize,
        at: u64,
        bytes: Bytes,
    ) -> BoxFuture<'_, Result<(), LandError>> {
        let count = bytes.len() as u64;
        self.meter.bytes.fetch_add(count, Relaxed);
        self.meter.front.fetch_add(count, Relaxed);
        self.land.take(index, at, bytes)
    }

    fn judged(&mut self, index: usize, good: bool) -> BoxFuture<'_, Result<(), LandError>> {
        // The landing takes it all the same: who counts on the way in sees that it came twice.
        if good {
            self.parcel.count_copy(index);
        }
        self.land.judged(index, good)
    }
}
