//! Which new tunnels try a detour: Algorithm 2 for what cannot be fetched in ranges.
//!
//! A tunnel's bytes are the program's own: they cannot be asked for over several paths, and a
//! race of connections tells round trips, not rates. So a whole tunnel is the sample. Where
//! a tunnel to the same destination has shown the direct path's rate, the next one begins by
//! the test detour, and later ones by each new test detour; what it brings is compared with
//! the direct path's rate. One that wins carries all further ones, one that does not is
//! redrawn. Differs from the paper, where a test detour takes part in each download.

use std::{collections::BTreeMap, time::Duration};
use thalweg_wire::Destination;

/// Of so many tunnels to a destination one is a trial at most: a slow test detour costs the
/// others nothing.
pub const EVERY: u32 = 4;

/// A trial's direct connection begins so much later: a relay's takes more round trips.
pub const HEAD_START: Duration = Duration::from_secs(1);

/// The most destinations that are kept apart; beyond, all begin anew.
const MOST: usize = 1_024;

/// The tunnels of this process.
#[derive(Debug, Default)]
pub struct Trials(BTreeMap<Destination, Trial>);

#[derive(Debug, Default)]
struct Trial {
    /// Tunnels since the last trial.
    since: u32,
    /// The relay that is tried.
    relay: Option<String>,
}

impl Trials {
    /// Counts a tunnel to there; whether it may be a trial.
    pub fn is_due(&mut self, to: &Destination) -> bool {
        if self.0.len() >= MOST && !self.0.contains_key(to) {
            self.0.clear();
        }
        let trial = self.0.entry(to.clone()).or_insert(Trial { since: EVERY, relay: None });
        trial.since = trial.since.saturating_add(1);
        trial.since > EVERY
    }

    /// A tunnel to there begins by this relay.
    pub fn begin(&mut self, to: &Destination, relay: &str) {
        self.0.insert(to.clone(), Trial { since: 1, relay: Some(relay.to_owned()) });
    }

    /// What this relay brought there is known; whether it was on trial.
    pub fn end(&mut self, to: &Destination, relay: &str) -> bool {
        let trial = self.0.get_mut(to).filter(|trial| trial.relay.as_deref() == Some(relay));
        trial.is_some_and(|trial| trial.relay.take().is_some())
    }
}
