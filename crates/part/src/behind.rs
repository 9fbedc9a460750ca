//! A checkpoint beside the writing: the disk works while the next bytes come.
//!
//! A writer that waits for its own sync after every batch leaves the disk idle while it
//! fills the next one, and the network while it waits. What is synced beside is only what was
//! written before it began: the records are taken first (decision 0046).

use super::{
    PartError,
    journal::{Journal, Record},
};
use std::{io, thread::JoinHandle};

/// A checkpoint under way. Dropping it waits for its end, so that nothing is written for a part
/// that is gone.
pub(super) struct Behind {
    pub(super) records: Vec<Record>,
    pub(super) thread: Option<JoinHandle<Result<Journal, PartError>>>,
}

impl Behind {
    pub(super) fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(super) fn wait(&mut self) -> Result<Journal, PartError> {
        let died = || PartError::io("sync", "".as_ref())(io::Error::other("the thread died"));
        let done = self.thread.take().map(JoinHandle::join);
        done.unwrap_or_else(|| Err(Box::new(()))).unwrap_or_else(|_| Err(died()))
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        // Whoever wanted its result has waited for it.
        _ = self.thread.take().map(JoinHandle::join);
    }
}
