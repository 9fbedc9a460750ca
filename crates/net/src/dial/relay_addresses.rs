//! Selects which address of each later relay is tried, and for how long.

use super::{Cause, DialError, Step};
use crate::Hop;
use std::{future::Future, time::Duration};
use thalweg_wire::Destination;
use tokio::time::{Instant, timeout_at};

/// The deadline of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptDeadline {
    pub until: Instant,
    whole: Duration,
}

impl AttemptDeadline {
    /// All the time until `until`, or an equal share of it if up to `more` attempts may follow.
    pub fn share(until: Instant, more: u32) -> Self {
        let now = Instant::now();
        let whole = until.saturating_duration_since(now) / (more + 1);
        // The message shows the time as it was set, without the microseconds that have passed.
        let shown = Duration::from_millis((whole.as_micros() as u64).div_ceil(10_000) * 10);
        Self { until: now + whole, whole: shown }
    }

    /// Awaits `work`. A timeout is reported as a failure of the same step.
    pub async fn wait<T>(
        self,
        step: Step,
        work: impl Future<Output = Result<T, Cause>>,
    ) -> Result<T, DialError> {
        match timeout_at(self.until, work).await {
            Ok(done) => done.map_err(|cause| step.failed(cause)),
            Err(_) => Err(step.failed(Cause::TimedOut(self.whole))),
        }
    }
}

/// The present address of each relay of a route, at first its first one. Addresses are stored in reverse.
#[derive(Debug)]
pub(super) struct RelayAddresses<'a>(Vec<Vec<&'a Destination>>);

impl<'a> RelayAddresses<'a> {
    pub fn new(hops: &'a [Hop]) -> Self {
        let reversed = |hop: &'a Hop| {
            let mut all: Vec<_> = hop.addresses().collect();
            all.reverse();
            all
        };
        Self(hops.iter().map(reversed).collect())
    }

    /// The address of the relay with this index; `None` behind the last.
    pub fn address(&self, hop: usize) -> Option<&'a Destination> {
        self.0.get(hop)?.last().copied()
    }

    /// The number of addresses of later relays that have not been tried.
    pub fn left(&self) -> u32 {
        let later = self.0.iter().skip(1);
        later.map(|addresses| addresses.len().saturating_sub(1) as u32).sum()
    }

    /// Advances to the next address of the relay that was not reached. Returns false if there is none, or if something
    /// else failed.
    pub fn advance(&mut self, error: &DialError) -> bool {
        let missed = match (&error.step, &error.cause) {
            (Step::Ask { toward, .. }, Cause::Refused(_) | Cause::TimedOut(_)) => toward,
            (Step::Reach { host, .. }, _) => host,
            _ => return false,
        };
        let mut later = self.0.iter_mut().skip(1);
        let found = later.find(|a| a.last() == Some(&missed) && a.len() > 1);
        found.is_some_and(|addresses| addresses.pop().is_some())
    }
}
