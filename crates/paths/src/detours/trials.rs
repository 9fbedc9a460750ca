//! Decides which new tunnels try a detour: Algorithm 2 for traffic that cannot be fetched in ranges.
//!
//! The bytes of a tunnel belong to a program and cannot be requested over several paths, and a race of connections
//! compares round trips, not rates. So a whole tunnel is the sample. Once a tunnel to a destination has shown the
//! direct path's rate, the next one begins with the test detour, and later ones with each new test detour; its rate is
//! compared with the direct path's rate. A detour that wins carries all further tunnels; one that does not is redrawn.
//! Differs from the paper, where a test detour takes part in each download.

use std::{collections::BTreeMap, time::Duration};
use thalweg_wire::Destination;

/// At most one of this many tunnels to a destination is a trial, so that a slow test detour does not delay the others.
pub const EVERY: u32 = 4;

/// How much later a trial's direct connection begins: a relay's connection takes more round trips.
pub const HEAD_START: Duration = Duration::from_secs(1);

/// The most destinations that are tracked. Beyond it, all start again.
const MOST: usize = 1_024;

/// The trials of this process.
#[derive(Debug, Default)]
pub struct Trials(BTreeMap<Destination, Trial>);

#[derive(Debug, Default)]
struct Trial {
    /// Tunnels since the last trial.
    since: u32,
    relay: Option<String>,
}

impl Trials {
    /// Counts a tunnel to this destination. Returns whether it may be a trial.
    pub fn is_due(&mut self, to: &Destination) -> bool {
        if self.0.len() >= MOST && !self.0.contains_key(to) {
            self.0.clear();
        }
        let trial = self.0.entry(to.clone()).or_insert(Trial { since: EVERY, relay: None });
        trial.since = trial.since.saturating_add(1);
        trial.since > EVERY
    }

    /// Records that a tunnel to this destination begins with this relay.
    pub fn begin(&mut self, to: &Destination, relay: &str) {
        self.0.insert(to.clone(), Trial { since: 1, relay: Some(relay.to_owned()) });
    }

    /// Records that the result of this relay is known. Returns whether it was on trial.
    pub fn end(&mut self, to: &Destination, relay: &str) -> bool {
        let trial = self.0.get_mut(to).filter(|trial| trial.relay.as_deref() == Some(relay));
        trial.is_some_and(|trial| trial.relay.take().is_some())
    }
}
