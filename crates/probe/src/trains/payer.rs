//! Charges the trains of a session, and makes them wait for their turn.

use super::{SessionError, Trains, endpoint::Incoming};
use crate::prober::ProbeBudget;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use thalweg_measure::train::Train;
use thalweg_units::{ByteSize, NodeId};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Makes each train wait for this host's lane and for the end of bulk flows, and charges it to the day's bytes; cheap
/// to clone.
#[derive(Clone, Debug)]
pub struct Payer {
    trains: Trains,
    to: NodeId,
    flows: Arc<Semaphore>,
    spent: Arc<AtomicU64>,
    /// The most bytes of all its trains together.
    most: u64,
}

/// Charges what arrives in a member's session: at each report of arrivals, and the unreported rest when the session
/// ends.
#[derive(Debug)]
pub(super) struct ArrivalCharge {
    pub(super) incoming: Arc<Incoming>,
    pub(super) probe_budget: Arc<ProbeBudget>,
    pub(super) from: NodeId,
}

impl ArrivalCharge {
    /// Charges what arrived since the last call.
    pub(super) fn pay(&self) {
        match self.incoming.unpaid() {
            0 => {}
            bytes => self.probe_budget.charge(self.from, bytes),
        }
    }
}

impl Drop for ArrivalCharge {
    fn drop(&mut self) {
        self.pay();
    }
}

/// The turn of a train, until it is dropped.
pub(super) struct TrainTurn<'a> {
    _lane: SemaphorePermit<'a>,
    _alone: SemaphorePermit<'a>,
}

impl Payer {
    /// Creates the payer of trains to this node. Bulk flows hold permits of `flows`.
    pub fn new(trains: Trains, to: NodeId, flows: Arc<Semaphore>) -> Self {
        Self { trains, to, flows, spent: Arc::default(), most: u64::MAX }
    }

    /// Limits the bytes of all trains together: a train that would exceed the limit is not sent.
    #[must_use]
    pub fn at_most(self, most: ByteSize) -> Self {
        Self { most: most.as_bytes(), ..self }
    }

    /// The bytes charged so far.
    pub fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }

    /// Waits for the train's turn, and charges it.
    pub(super) async fn turn(&self, train: &Train) -> Result<TrainTurn<'_>, SessionError> {
        if self.spent().saturating_add(train.bytes()) > self.most {
            return Err(SessionError::Budget);
        }
        let closed = |_| SessionError::Budget;
        let alone = self.flows.acquire().await.map_err(closed)?;
        let lane = self.trains.lane(self.to, train).await?;
        self.spent.fetch_add(train.bytes(), Ordering::Relaxed);
        Ok(TrainTurn { _lane: lane, _alone: alone })
    }
}
