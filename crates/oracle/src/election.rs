//! Which of several oracles on one database schedules.
//!
//! The elected one holds a lease in the database, which it renews three times in its
//! validity. If it ends, another takes the lease once it has run out: with 6 s and a try
//! each 2 s that is 8 s at most. Its number, the *term*, goes with whatever it orders, so
//! that orders of two who both believe to be elected are told apart.
//!
//! Nothing but scheduling and the renewal of the roster by date hangs on it: any oracle
//! answers, lets hosts join and publishes.

use crate::{Database, Event, Oracle, OracleError, store::Ballot};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use thalweg_units::NodeId;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// With a server: others wait for this long at most when an oracle dies.
const VALID: Duration = Duration::from_secs(6);

/// With a file, which one process has: to keep the number is all, and each renewal is synced.
const VALID_OF_FILE: Duration = Duration::from_secs(1800);

/// How many times a lease is renewed in its validity.
const TIMES: u32 = 3;

/// Who schedules, as this oracle knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody, or not known.
    #[default]
    Unknown,
    /// This oracle.
    Elected {
        /// The lease's number: greater than all before. Below 2³³ until the year 2242, so
        /// `term << 30` leaves room for numbers of one's own in an `i64`.
        term: u64,
    },
    /// Another.
    Another(NodeId),
}

/// What this oracle knows, and until when by its own steady clock.
#[derive(Debug, Default)]
pub(crate) struct Election(Mutex<Option<(Standing, Instant)>>);

impl Election {
    fn lock(&self) -> MutexGuard<'_, Option<(Standing, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(&self) -> Standing {
        let known = self.lock().filter(|(_, until)| Instant::now() < *until);
        known.map_or(Standing::Unknown, |(standing, _)| standing)
    }

    /// What was known before, even if it holds no more.
    fn set(&self, standing: Standing, until: Instant) -> Option<Standing> {
        self.lock().replace((standing, until)).map(|(before, _)| before)
    }

    fn term(&self) -> Option<u64> {
        match *self.lock() {
            Some((Standing::Elected { term }, _)) => Some(term),
            _ => None,
        }
    }
}

impl Oracle {
    /// Who schedules now. An elected oracle whose lease has run out by its own steady clock
    /// is elected no more, also while it does not reach the database.
    pub(crate) fn standing(&self) -> Standing {
        self.inner.election.standing()
    }

    fn lease_validity(&self) -> Duration {
        let config = &self.inner.config;
        config.lease.unwrap_or(match config.database {
            Database::File => VALID_OF_FILE,
            Database::Server(_) => VALID,
        })
    }

    /// Stands for election again and again; never ends.
    pub(crate) async fn elections(&self) {
        let mut ticks = interval(self.lease_validity() / TIMES);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // What is wrong with the database is told by the look for newer rosters.
            let _ = self.campaign().await;
        }
    }

    /// Renews the lease, or takes it if nobody has one.
    pub(crate) async fn campaign(&self) -> Result<Standing, OracleError> {
        // Counted from before the question: the lease ends here no later than there.
        let (asked, valid) = (Instant::now(), self.lease_validity());
        let standing = match self.renewed(valid).await? {
            Some(term) => (Standing::Elected { term }, asked + valid),
            None => match self.inner.store.lease(&self.inner.node, valid).await? {
                Ballot::Won(term) => (Standing::Elected { term }, asked + valid),
                Ballot::Held(by) => (Standing::Another(by.holder), Instant::now() + by.left),
            },
        };
        self.settle(standing);
        Ok(standing.0)
    }

    /// The term, if this oracle had one and still has.
    async fn renewed(&self, valid: Duration) -> Result<Option<u64>, OracleError> {
        let Some(term) = self.inner.election.term() else { return Ok(None) };
        let held = self.inner.store.renew_lease(&self.inner.node, term, valid).await?;
        Ok(held.then_some(term))
    }

    fn settle(&self, (standing, until): (Standing, Instant)) {
        let before = self.inner.election.set(standing, until);
        match (before, standing) {
            (before, now) if before == Some(now) => {}
            (_, Standing::Elected { term }) => self.tell(&Event::Elected(term)),
            (Some(Standing::Elected { term }), _) => self.tell(&Event::Deposed(term)),
            _ => {}
        }
    }

    /// Gives the lease back, so that another need not wait; in vain if the database is away.
    pub(crate) async fn step_down(&self) {
        let Some(term) = self.inner.election.term() else { return };
        self.inner.election.set(Standing::Unknown, Instant::now());
        let released = self.inner.store.release_lease(&self.inner.node, term);
        let _ = timeout(Duration::from_secs(1), released).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_schedules_ten_seconds_after_a_death_at_most() {
        // The last renewal just before it; the try just before the lease runs out, and the next.
        assert!(VALID + VALID / TIMES <= Duration::from_secs(10));
        assert_eq!(VALID / TIMES, Duration::from_secs(2));
    }
}
