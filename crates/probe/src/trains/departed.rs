//! Trains that have left.

use super::{SessionError, fly::Flown};
use std::time::Duration;
use thalweg_measure::train::{Flight, Stamp, Tally};
use thalweg_units::Time;

/// A train that has left for the member, and of which nobody has asked what arrived.
pub struct Departed {
    pub(super) number: u32,
    pub(super) probes: usize,
    pub(super) flown: Flown,
}

impl Departed {
    /// Riders' bytes in each probe, what was repeated included.
    pub fn carried(&self) -> &[u32] {
        &self.flown.carried
    }

    /// What this end knows of it: nothing of arrivals.
    pub fn unasked(self) -> Flight {
        joined(self.flown, vec![None; self.probes], 0)
    }
}

impl std::fmt::Debug for Departed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Departed").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A train that the member sent: what rode in it only the member knows.
pub(super) fn there(sent: Vec<Option<u64>>, took: Duration) -> Flown {
    let carried = vec![0; sent.len()];
    let sent = sent.into_iter().map(|at| at.map(Time::from_nanos)).collect();
    let (expired, failed, tally) = (Vec::new(), None, Tally::default());
    Flown { sent, expired, failed, took, tally, carried }
}

/// Both ends' words together.
pub(super) fn flight(
    flown: Flown,
    (arrived, dropped): (Vec<Option<u64>>, u32),
    probes: usize,
) -> Result<Flight, SessionError> {
    if flown.sent.len() != probes || arrived.len() != probes {
        return Err(SessionError::Protocol("it speaks of more or fewer probes than there were"));
    }
    Ok(joined(flown, arrived, dropped))
}

fn joined(flown: Flown, arrived: Vec<Option<u64>>, dropped: u32) -> Flight {
    let Flown { sent, expired, took, tally, .. } = flown;
    let arrived = arrived.into_iter().map(|at| at.map(Stamp::from_unix_nanos)).collect();
    let tally = Tally { transmitted: took, ..tally };
    Flight { sent, arrived, expired, tally, dropped: dropped.into() }
}
