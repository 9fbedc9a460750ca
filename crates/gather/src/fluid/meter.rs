//! Measures the bytes and the rate of a path.

use super::worker::AwaitedRequest;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thalweg_files::{
    land::LandError,
    remote::{LandSink, Sink},
};

/// The counters of one path. Its worker writes them; the conductor and the scheduler read them.
#[derive(Debug, Default)]
pub(super) struct PathMeter {
    /// All bytes received.
    bytes: AtomicU64,
    /// Bytes received of the request that is being answered.
    front: AtomicU64,
    /// The recent rate, bytes/s.
    rate: AtomicU64,
}

impl PathMeter {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(super) fn front(&self) -> u64 {
        self.front.load(Relaxed)
    }

    /// The recent rate, bytes/s; 0: unknown.
    pub(super) fn rate(&self) -> f64 {
        self.rate.load(Relaxed) as f64
    }

    /// Averages the rate of an interval with the rate before.
    pub(super) fn see(&self, rate: f64) {
        let before = self.rate();
        let mean = if before > 0.0 { f64::midpoint(before, rate) } else { rate };
        self.rate.store(mean as u64, Relaxed);
    }

    /// Raises the rate to that of a request, as a lower bound.
    pub(super) fn see_at_least(&self, rate: f64) {
        self.rate.fetch_max(rate as u64, Relaxed);
    }

    pub(super) fn next_request(&self) {
        self.front.store(0, Relaxed);
    }
}

/// Counts bytes as they arrive; they are written once their hash has been verified.
pub(super) struct MeteredSink<'a> {
    pub(super) land: LandSink<'a>,
    pub(super) meter: &'a PathMeter,
    pub(super) request: AwaitedRequest<'a>,
}

impl Sink for MeteredSink<'_> {
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

    fn end_part(&mut self, index: usize, good: bool) -> BoxFuture<'_, Result<(), LandError>> {
        // The landing accepts copies too, so that its input counter includes duplicates.
        if good {
            self.request.count_copy(index);
        }
        self.land.end_part(index, good)
    }
}
