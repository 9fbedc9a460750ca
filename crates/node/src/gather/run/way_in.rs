//! What every byte passes before it lands: the count of its source, and the limit.

use super::{
    super::{FileNo, Inventory, Land, LandError},
    watch::Counts,
};
use crate::{daemon::BoxFuture, get::Limit};
use bytes::Bytes;
use std::sync::Arc;
use tokio::time::sleep;

/// Counts bytes by their source, and lets not more through than the limit; who sends is slowed down
/// by the waiting.
#[derive(Debug)]
pub(super) struct WayIn {
    land: Arc<dyn Land>,
    /// By file.
    sources: Vec<u32>,
    counts: Arc<Counts>,
    limit: Option<Limit>,
}

impl WayIn {
    pub(super) fn new(
        land: Arc<dyn Land>,
        inventory: &Inventory,
        counts: Arc<Counts>,
        limit: Option<Limit>,
    ) -> Self {
        let sources = inventory.files.iter().map(|wanted| wanted.source).collect();
        Self { land, sources, counts, limit }
    }
}

impl Land for WayIn {
    fn write(&self, file: FileNo, at: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), LandError>> {
        Box::pin(async move {
            let count = bytes.len() as u64;
            if let Some(limit) = &self.limit {
                sleep(limit.charge(count)).await;
            }
            self.land.write(file, at, bytes).await?;
            if let Some(source) = self.sources.get(file.0 as usize) {
                self.counts.came(*source, count);
            }
            Ok(())
        })
    }

    fn give_up(&self, file: FileNo, why: String) {
        self.land.give_up(file, why);
    }
}
