//! Who schedules: one row, valid by the database's own clock.

use super::{Store, StoreError};
use std::time::Duration;
use thalweg_units::NodeId;

/// Who holds the lease, as far as the database knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// The oracle, by its node's key.
    pub holder: NodeId,
    /// Its number: every lease that is given to another, or anew, has a greater one.
    pub term: u64,
    /// How long it is still valid.
    pub left: Duration,
}

impl Store {
    /// The lease, if somebody has a valid one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn leased(&self) -> Result<Option<Lease>, StoreError> {
        Ok(None)
    }

    /// Takes the lease if nobody has a valid one: its term. The term is greater than every one
    /// before, and not below the database's date in seconds, so that a database restored
    /// from a backup gives none twice.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn lease(&self, holder: &NodeId, valid: Duration) -> Result<Option<u64>, StoreError> {
        let _ = (holder, valid);
        Ok(None)
    }

    /// Makes one's own lease valid for so long from now on; false: it was lost.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn renew_lease(
        &self,
        holder: &NodeId,
        term: u64,
        valid: Duration,
    ) -> Result<bool, StoreError> {
        let _ = (holder, term, valid);
        Ok(false)
    }

    /// Gives one's own lease back, so that another oracle need not wait.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn release_lease(&self, holder: &NodeId, term: u64) -> Result<(), StoreError> {
        let _ = (holder, term);
        Ok(())
    }
}
