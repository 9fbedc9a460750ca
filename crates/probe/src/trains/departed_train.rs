//! Trains that were sent.

use super::{SessionError, probe_sender::SentTrain};
use std::time::Duration;
use thalweg_measure::train::{Flight, Stamp, Tally};
use thalweg_units::Time;

/// A train that was sent to the member, and whose arrivals have not been requested.
pub struct DepartedTrain {
    pub(super) number: u32,
    pub(super) probes: usize,
    pub(super) sent_train: SentTrain,
}

impl DepartedTrain {
    /// Riders' bytes in each probe, repeats included.
    pub fn carried(&self) -> &[u32] {
        &self.sent_train.carried
    }

    /// The flight as this end knows it, without arrivals.
    pub fn without_arrivals(self) -> Flight {
        joined(self.sent_train, vec![None; self.probes], 0)
    }
}

impl std::fmt::Debug for DepartedTrain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DepartedTrain").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A train that the member sent. Only the member knows its riders.
pub(super) fn from_member_report(sent: Vec<Option<u64>>, took: Duration) -> SentTrain {
    let carried = vec![0; sent.len()];
    let sent = sent.into_iter().map(|at| at.map(Time::from_nanos)).collect();
    let (expired, failed, tally) = (Vec::new(), None, Tally::default());
    SentTrain { sent, expired, failed, took, tally, carried }
}

/// Joins the reports of both ends.
pub(super) fn flight(
    sent_train: SentTrain,
    (arrived, dropped): (Vec<Option<u64>>, u32),
    probes: usize,
) -> Result<Flight, SessionError> {
    if sent_train.sent.len() != probes || arrived.len() != probes {
        return Err(SessionError::Protocol("its report has more or fewer probes than were sent"));
    }
    Ok(joined(sent_train, arrived, dropped))
}

fn joined(sent_train: SentTrain, arrived: Vec<Option<u64>>, dropped: u32) -> Flight {
    let SentTrain { sent, expired, took, tally, .. } = sent_train;
    let arrived = arrived.into_iter().map(|at| at.map(Stamp::from_unix_nanos)).collect();
    let tally = Tally { transmitted: took, ..tally };
    Flight { sent, arrived, expired, tally, dropped: dropped.into() }
}
