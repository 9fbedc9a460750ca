//! Holds back paths over interfaces that cost money until the deadline cannot be met without them.

use super::Ranged;
use std::time::Instant;
use thalweg_bond::{Offer, PaidReserve};
use thalweg_units::{PathId, Time};

/// The paths that are held back, if any.
#[derive(Debug, Default)]
pub(super) struct HeldBackPaths(Option<(PaidReserve<PathId>, Instant)>);

impl HeldBackPaths {
    /// Creates it from the request's settings.
    pub(super) fn new(request: &crate::Request) -> Self {
        let Some(thrift) = &request.thrift else { return Self::default() };
        let began = Instant::now();
        let offer = |(path, dear): (&u32, &crate::PricedPath)| {
            (PathId(*path), Offer { rate: dear.expected, price: dear.price, left: None })
        };
        let until = Time::ZERO + thrift.until.saturating_duration_since(began);
        let thrift = PaidReserve::new(thrift.dear.iter().map(offer).collect(), until);
        Self(Some((thrift, began)))
    }

    /// Whether a path is held back.
    pub(super) fn holds(&self, path: PathId) -> bool {
        self.0.as_ref().is_some_and(|(thrift, _)| thrift.holds(&path))
    }

    /// Releases the paths that must begin now. Returns whether there are any.
    fn due(&mut self, done: u64, missing: u64) -> bool {
        let Some((thrift, began)) = &mut self.0 else { return false };
        thrift.record_progress(done, missing, Time::ZERO + began.elapsed())
    }

    /// Releases all paths, because no other path works any more. Returns whether there are any.
    fn all(&mut self) -> bool {
        self.0.as_mut().is_some_and(|(thrift, _)| thrift.release_all())
    }
}

impl Ranged<'_, '_> {
    /// Starts costly paths if the deadline requires it.
    pub(super) fn start_due_paths(&mut self) {
        let done = self.meter.done();
        let missing = self.sources.pinned().length.saturating_sub(done);
        if self.waiting.due(done, missing) {
            self.join_connected();
        }
    }

    /// Starts all costly paths, because no other path is left. Returns whether there are any.
    pub(super) fn start_costly_paths(&mut self) -> bool {
        let is_any = self.waiting.all();
        if is_any {
            self.join_connected();
        }
        is_any
    }
}
