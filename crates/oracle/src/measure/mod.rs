//! Measuring the mesh: orders (which member measures which leg, and when), checks of the reports, and
//! answers to clients.
//!
//! ```text
//! roster ─→ nodes ─→ planner ─→ orders ──→ senders (long poll)
//!                      ↑          │
//!                    known ←── reports ←── both ends
//!                      │  └──→ history ──→ database (beside, never waited for)
//!                      ↓
//!             ranked ─→ offer ─→ candidates, paths
//! ```
//!
//! A rate is what both ends say: the lower of the two, and where they differ by more than a
//! quarter that is shown. What one end says alone counts for less, see [`verdict`]. Nothing
//! enters of legs that a reporter is no end of. The client-oblivious ranking is
//! [`Ranking::robust`](thalweg_plan::ranking::Ranking::robust), which bounds what liars do.
//!
//! Source: UKAIRO §3.1. Of several oracles on one database the elected one schedules; all of
//! them answer reads, from what it records.

mod assigning;
mod candidates;
mod event;
mod history;
mod keeping;
mod known;
#[cfg(test)]
mod liars;
mod live;
mod loads;
mod nodes;
mod offer;
mod orders;
mod paths;
mod planner;
mod polls;
mod presence;
mod pulse;
mod ranked;
mod repeats;
mod reports;
mod seed;
mod settings;
mod state;
mod tally;
mod verdict;

pub use event::MeasureEvent;
pub use seed::Leg as SeedLeg;
pub use settings::{MeasureConfig, Order, Pace};
pub use tally::MeasureCounts;

use crate::limits::{self, PerKey};
use assigning::Assigning;
use history::History;
use offer::Offer;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng as _};
use ranked::Ranked;
use state::{Now, State};
use std::{
    io,
    sync::{Arc, Mutex as Lock, PoisonError, RwLock},
    time::Instant,
};
use tally::Tally;
use thalweg_units::{NodeId, Time};
use thalweg_wire::mesh::Roster;
use tokio::sync::{Mutex, Notify, Semaphore};

/// When the service's clock begins: what was measured before the process began, and is read
/// from the database, has a date on it as well.
const BEGIN: Time = Time::from_nanos(2 * thalweg_plan::graph::MAX_AGE.as_nanos() as u64);

/// The measuring service of one oracle.
#[derive(Debug)]
pub(crate) struct Measuring {
    config: MeasureConfig,
    clock: crate::Clock,
    start: Instant,
    /// Waited for, not spun on: at the largest meshes it is held for some 100 ms.
    state: Mutex<State>,
    offer: RwLock<Arc<Offer>>,
    /// The last ranking, from which the next follows.
    ranked: Lock<Arc<Ranked>>,
    assigning: Assigning,
    history: History,
    tally: Arc<Tally>,
    /// Something happened that the pulse must look at.
    news: Notify,
    /// Requests that wait for orders.
    waiting: Semaphore,
    waits_each: PerKey,
    random: Lock<Xoshiro256PlusPlus>,
}

impl Measuring {
    /// Nothing is known yet.
    ///
    /// # Errors
    /// No random bytes, or no thread.
    pub fn new(config: MeasureConfig, clock: crate::Clock) -> io::Result<Self> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        let mut random = Xoshiro256PlusPlus::from_seed(seed);
        let mut another = || {
            let next = random.clone();
            random.long_jump();
            next
        };
        let state = State::new(&config, another());
        Ok(Self {
            tally: Arc::clone(&state.tally),
            state: Mutex::new(state),
            assigning: Assigning::start(config.pace.candidates, another())?,
            random: Lock::new(another()),
            offer: RwLock::new(Arc::new(Offer::nothing())),
            ranked: Lock::new(Arc::new(Ranked::nothing())),
            history: History::default(),
            news: Notify::new(),
            waiting: Semaphore::new(limits::WAITING),
            waits_each: PerKey::default(),
            start: Instant::now(),
            config,
            clock,
        })
    }

    /// Now: ages are counted on this process's steady clock; only the history has dates.
    fn now(&self) -> Now {
        Now { time: BEGIN + self.start.elapsed(), wall: self.clock.now() }
    }

    /// What it has come to so far.
    pub fn counts(&self) -> MeasureCounts {
        self.tally.read()
    }

    /// What is offered now.
    fn offer(&self) -> Arc<Offer> {
        self.offer.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The slot of a key's member; none: no member, or this roster's members are not known yet.
    pub fn slot(&self, key: &NodeId, roster: &Roster) -> Option<u32> {
        let offer = self.offer();
        offer.shows(roster).then(|| offer.nodes.by_key(key)).flatten()
    }

    fn set_offer(&self, offer: Arc<Offer>) {
        *self.offer.write().unwrap_or_else(PoisonError::into_inner) = offer;
    }

    /// What is drawn with this service's generator.
    fn drawn<T>(&self, draw: impl FnOnce(&mut Xoshiro256PlusPlus) -> T) -> T {
        draw(&mut self.random.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_units::WallTime;

    #[test]
    fn what_was_measured_before_the_process_began_keeps_its_age() {
        let now = Measuring::new(MeasureConfig::default(), crate::Clock::system()).unwrap().now();
        let days = std::time::Duration::from_secs(10 * 24 * 3600);
        let date = now.wall.as_unix_nanos() - days.as_nanos() as u64;
        assert_eq!(now.time.since(now.time_of(WallTime::from_unix_nanos(date))), days);
    }
}
