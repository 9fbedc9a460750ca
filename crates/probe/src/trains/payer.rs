//! Who pays for a session's trains, and when they may go.

use super::{SessionError, Trains, endpoint::Incoming};
use crate::prober::Purse;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use thalweg_measure::train::Train;
use thalweg_units::{ByteSize, NodeId};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Has each train wait for this host's lane, and until no bulk flow is under way, and pays for it from the day's bytes;
/// cheap to clone.
#[derive(Clone, Debug)]
pub struct Payer {
    trains: Trains,
    to: NodeId,
    flows: Arc<Semaphore>,
    spent: Arc<AtomicU64>,
    /// Bytes, of all its trains together.
    most: u64,
}

/// What came in a member's session, paid for when it is told of, and what nobody asked for when the session ends.
#[derive(Debug)]
pub(super) struct Bill {
    pub(super) incoming: Arc<Incoming>,
    pub(super) purse: Arc<Purse>,
    pub(super) from: NodeId,
}

impl Bill {
    /// Pays for what came since the last time.
    pub(super) fn pay(&self) {
        match self.incoming.unpaid() {
            0 => {}
            bytes => self.purse.charge(self.from, bytes),
        }
    }
}

impl Drop for Bill {
    fn drop(&mut self) {
        self.pay();
    }
}

/// A train's turn, until it is dropped.
pub(super) struct Turn<'a> {
    _lane: SemaphorePermit<'a>,
    _alone: SemaphorePermit<'a>,
}

impl Payer {
    /// For trains to this node; bulk flows have places of this semaphore.
    pub fn new(trains: Trains, to: NodeId, flows: Arc<Semaphore>) -> Self {
        Self { trains, to, flows, spent: Arc::default(), most: u64::MAX }
    }

    /// The same, for no more than this: a train that would cost more does not go.
    #[must_use]
    pub fn at_most(self, most: ByteSize) -> Self {
        Self { most: most.as_bytes(), ..self }
    }

    /// What was paid so far, bytes.
    pub fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }

    /// Waits for the train's turn.
    pub(super) async fn turn(&self, train: &Train) -> Result<Turn<'_>, SessionError> {
        if self.spent().saturating_add(train.bytes()) > self.most {
            return Err(SessionError::Budget);
        }
        let closed = |_| SessionError::Budget;
        let alone = self.flows.acquire().await.map_err(closed)?;
        let lane = self.trains.lane(self.to, train).await?;
        self.spent.fetch_add(train.bytes(), Ordering::Relaxed);
        Ok(Turn { _lane: lane, _alone: alone })
    }
}
