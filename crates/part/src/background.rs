//! Checkpoints in the background, which keep the disk busy while the next bytes arrive.
//!
//! A writer that waits for its own sync after every batch leaves the disk idle while it fills the next batch, and the
//! network idle while it waits. The sync covers only bytes written before it began, because their records are taken
//! first (decision 0046).

use super::{
    PartError,
    journal::{Journal, Record},
};
use std::{io, thread::JoinHandle};

/// A running checkpoint. Dropping it waits for its end, so that nothing is written for a part that is gone.
pub(super) struct BackgroundCheckpoint {
    pub(super) records: Vec<Record>,
    pub(super) thread: Option<JoinHandle<Result<Journal, PartError>>>,
}

impl BackgroundCheckpoint {
    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(super) fn wait(&mut self) -> Result<Journal, PartError> {
        let died = || PartError::Thread(io::Error::other("the checkpoint thread died"));
        let done = self.thread.take().map(JoinHandle::join);
        done.unwrap_or_else(|| Err(Box::new(()))).unwrap_or_else(|_| Err(died()))
    }
}

impl Drop for BackgroundCheckpoint {
    fn drop(&mut self) {
        // The result is not needed any more; a caller that needs it has called `wait`.
        _ = self.thread.take().map(JoinHandle::join);
    }
}
