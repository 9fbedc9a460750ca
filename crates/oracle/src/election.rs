//! Elects the one oracle that schedules, among several on one database.
//!
//! The elected oracle holds a lease in the database, which it renews three times per validity. If it dies, another
//! oracle takes the lease once it has expired: after at most 8 s, with a validity of 6 s and an attempt every 2 s. The
//! lease's number, the *term*, is part of every order, so that orders of two oracles that both believe to be elected
//! can be told apart.
//!
//! Only scheduling and the periodic renewal of the roster need the lease: any oracle answers requests, lets hosts join
//! and publishes.

use crate::{Database, Event, OracleError, registry::Registry, store::Ballot};
use parking_lot::Mutex;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_units::NodeId;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The lease's validity with a server: the longest that others wait when an oracle dies.
const VALIDITY: Duration = Duration::from_secs(6);

/// The lease's validity with a file. A file belongs to one process, so the lease only keeps the term, and each renewal
/// costs a sync.
const FILE_VALIDITY: Duration = Duration::from_secs(1800);

/// How often a lease is renewed per validity.
const RENEWALS_PER_VALIDITY: u32 = 3;

/// Which oracle schedules, as far as this oracle knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ElectionState {
    /// None, or not known.
    #[default]
    Unknown,
    /// This oracle.
    Elected {
        /// The lease's number, greater than all before. It stays below 2³³ until the year 2242, so `term << 30` leaves
        /// 30 bits for the holder's own numbers in an `i64`.
        term: u64,
    },
    Another(NodeId),
}

/// The known standing and its end by the monotonic clock.
#[derive(Debug)]
pub(crate) struct Election {
    registry: Arc<Registry>,
    known: Mutex<Option<(ElectionState, Instant)>>,
}

impl Election {
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry, known: Mutex::default() }
    }

    /// Which oracle schedules now. An elected oracle whose lease has expired by its own monotonic clock no longer
    /// counts as elected, even if it cannot reach the database.
    pub fn state(&self) -> ElectionState {
        let known = self.known.lock().filter(|(_, until)| Instant::now() < *until);
        known.map_or(ElectionState::Unknown, |(standing, _)| standing)
    }

    /// Stores the standing. Returns the previous one, even if it has expired.
    fn set(&self, standing: ElectionState, until: Instant) -> Option<ElectionState> {
        self.known.lock().replace((standing, until)).map(|(before, _)| before)
    }

    fn term(&self) -> Option<u64> {
        match *self.known.lock() {
            Some((ElectionState::Elected { term }, _)) => Some(term),
            _ => None,
        }
    }

    fn lease_validity(&self) -> Duration {
        let config = &self.registry.config;
        config.lease.unwrap_or(match config.database {
            Database::File => FILE_VALIDITY,
            Database::Server(_) => VALIDITY,
        })
    }

    /// Campaigns periodically; never returns.
    pub(crate) async fn run(&self) {
        let mut ticks = interval(self.lease_validity() / RENEWALS_PER_VALIDITY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // An oracle whose key was replaced signs nothing: another one must be able to win.
            if self.registry.check_key().is_err() {
                self.step_down().await;
                continue;
            }
            // Database errors are reported by `Oracle::tick`, which looks for newer rosters.
            let _ = self.campaign().await;
        }
    }

    /// Renews the lease, or takes it if it is free.
    pub(crate) async fn campaign(&self) -> Result<ElectionState, OracleError> {
        // Counted from before the request, so that the lease ends here no later than in the database.
        let (asked, valid) = (Instant::now(), self.lease_validity());
        let standing = match self.renewed(valid).await? {
            Some(term) => (ElectionState::Elected { term }, asked + valid),
            None => match self.registry.store.lease(&self.registry.node, valid).await? {
                Ballot::Won(term) => (ElectionState::Elected { term }, asked + valid),
                Ballot::Held(by) => (ElectionState::Another(by.holder), Instant::now() + by.left),
            },
        };
        self.settle(standing);
        Ok(standing.0)
    }

    /// The term, if this oracle had the lease and has renewed it.
    async fn renewed(&self, valid: Duration) -> Result<Option<u64>, OracleError> {
        let Some(term) = self.term() else { return Ok(None) };
        let held = self.registry.store.renew_lease(&self.registry.node, term, valid).await?;
        Ok(held.then_some(term))
    }

    fn settle(&self, (standing, until): (ElectionState, Instant)) {
        let before = self.set(standing, until);
        match (before, standing) {
            (before, now) if before == Some(now) => {}
            (_, ElectionState::Elected { term }) => self.registry.emit(&Event::Elected(term)),
            (Some(ElectionState::Elected { term }), _) => self.registry.emit(&Event::Deposed(term)),
            _ => {}
        }
    }

    /// Releases the lease, so that another oracle need not wait. Without effect if the database is unreachable.
    pub(crate) async fn step_down(&self) {
        let Some(term) = self.term() else { return };
        self.set(ElectionState::Unknown, Instant::now());
        let released = self.registry.store.release_lease(&self.registry.node, term);
        let _ = timeout(Duration::from_secs(1), released).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_schedules_ten_seconds_after_a_death_at_most() {
        // The worst case: the oracle dies just after a renewal, and the attempt before the expiry just misses it.
        assert!(VALIDITY + VALIDITY / RENEWALS_PER_VALIDITY <= Duration::from_secs(10));
        assert_eq!(VALIDITY / RENEWALS_PER_VALIDITY, Duration::from_secs(2));
    }
}
