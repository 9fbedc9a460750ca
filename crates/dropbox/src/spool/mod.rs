//! Submissions of others that a node holds: data, receipts, and which of them the destination knows of.
//!
//! ```text
//! push ─► part/ID ─ matches? ─► data/xx/ID ─► `held`: receipt ─► client, outbox ─► destination
//! ```
//!
//! Before a receipt is given its data, the data's name and the receipt itself are durable: the
//! journal syncs the data's filesystem before each group of receipts.

mod arriving;
mod parts;
mod push;
mod record;
mod room;
mod state;
#[cfg(test)]
mod tests;

pub(super) use push::{Push, push};
pub(super) use record::Record;
pub use state::SpoolCounts;

use parts::Parts;
use state::State;

use super::{
    files::BoxFiles,
    journal::{self, Journal},
};
use std::{
    fs, io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use thalweg_net::PrivateKey;
use thalweg_wire::{
    Signed, Signer as _,
    bistro::{Delivery, Receipt, Refusal, StampId},
    mesh::Name,
};
use tokio::sync::Notify;

/// The data of one box at a node.
#[derive(Debug)]
pub(super) struct Spool {
    pub files: BoxFiles,
    key: Arc<PrivateKey>,
    me: Name,
    /// Bytes of all data, complete, on its way and left behind.
    max_total: u64,
    /// Bytes that are free on a filesystem.
    free: fn(&Path) -> u64,
    journal: Journal,
    state: Mutex<State>,
    /// There is something to tell the destination.
    pub news: Notify,
}

/// Counts what is there, without a daemon.
///
/// # Errors
/// The system's.
pub(super) fn count(files: &BoxFiles) -> io::Result<SpoolCounts> {
    let mut state = State::default();
    state.replay(&journal::read(&files.held())?.records);
    Ok(state.counts())
}

impl Spool {
    /// Opens what is in the directory, and throws away what was abandoned.
    ///
    /// # Errors
    /// The system's.
    pub fn open(
        files: BoxFiles,
        key: Arc<PrivateKey>,
        me: Name,
        max_total: u64,
    ) -> io::Result<Self> {
        let head = key.id();
        let found = journal::read(&files.held())?;
        let mut state = State::default();
        state.replay(&found.records);
        // Another key's book is left as it is: `Journal::open` refuses it.
        if found.head.as_deref() == Some(head.as_bytes())
            && state.is_worth_compacting(&found.records)
        {
            journal::rewrite(&files.held(), head.as_bytes(), &state.records())?;
        }
        let (journal, _) = Journal::open(&files.held(), head.as_bytes(), Some(files.data()))?;
        state.parts = Parts::find(&files)?;
        let (state, news) = (Mutex::new(state), Notify::new());
        Ok(Self { files, key, me, max_total, free: room::free, journal, state, news })
    }

    /// A thread that panicked in here left whole entries.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is here.
    pub fn counts(&self) -> SpoolCounts {
        self.lock().counts()
    }

    /// What there is of this submission.
    pub fn receipt(&self, id: &StampId) -> Option<Vec<u8>> {
        self.lock().receipt(id)
    }

    /// Gives the receipt of data that is complete under its name.
    pub async fn receive(&self, mut delivery: Delivery, bytes: u64) -> Result<Vec<u8>, Refusal> {
        let id = StampId::of_bytes(&delivery.stamp);
        let time = thalweg_base::clock::WallClock::default().now();
        let receipt = Receipt { stamp: id, node: self.me.clone(), time };
        delivery.receipt = Signed::sign(receipt, &*self.key).encode();
        let record = Record::Held { id, bytes, delivery: delivery.clone() };
        self.write(record).await?;
        self.news.notify_one();
        Ok(delivery.receipt)
    }

    /// Makes a record durable, and true.
    async fn write(&self, record: Record) -> Result<(), Refusal> {
        let written = self.journal.append(vec![record.encode()]).await;
        written.map_err(|e| Refusal::Unable(format!("write what it has: {e}")))?;
        self.lock().apply(record);
        Ok(())
    }

    /// Receipts that the destination does not know of, of so many bytes at most.
    pub fn untold(&self, count: usize, bytes: usize) -> Vec<(StampId, Delivery)> {
        let state = self.lock();
        let mut left = bytes;
        let size = |d: &Delivery| d.stamp.len() + d.receipt.len() + d.path.len() + 64;
        let all = state.untold.iter().filter_map(|id| Some((*id, state.held.get(id)?)));
        let some = all.map(|(id, held)| (id, held.delivery.clone())).take(count);
        let fits = |(_, delivery): &(StampId, Delivery)| {
            let fits = size(delivery) <= left;
            left = left.saturating_sub(size(delivery));
            fits
        };
        some.take_while(fits).collect()
    }

    /// The destination knows of these now.
    pub async fn told(&self, ids: Vec<StampId>) -> Result<(), Refusal> {
        self.write(Record::Told(ids)).await
    }

    /// The destination has refused these receipts, and is not told of them again; its signed words are for the clients.
    pub async fn denied(&self, all: Vec<(StampId, Vec<u8>)>) -> Result<(), Refusal> {
        self.write(Record::Denied(all)).await
    }

    /// With what the destination has refused this node's receipt, `Signed<Denial>`.
    pub fn denial(&self, id: &StampId) -> Option<Vec<u8>> {
        self.lock().denial(id)
    }

    /// The destination has collected these: throws their data away; how many there were.
    ///
    /// What cannot be removed is still held, and the destination asks again.
    pub async fn forget(&self, ids: Vec<StampId>) -> Result<u32, Refusal> {
        let here: Vec<_> = {
            let state = self.lock();
            let here = |id: &StampId| state.held.contains_key(id);
            ids.into_iter().filter(here).collect()
        };
        let files = self.files.clone();
        let removing = move || {
            let (mut gone, mut failed) = (Vec::new(), None);
            for id in here {
                match fs::remove_file(files.of(&id)) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => failed = Some(e),
                    _ => gone.push(id),
                }
            }
            (gone, failed)
        };
        let removed = tokio::task::spawn_blocking(removing).await;
        let unable = |e| Refusal::Unable(format!("remove collected data: {e}"));
        let (gone, failed) = removed.map_err(|e| unable(io::Error::other(e)))?;
        let count = gone.len() as u32;
        self.write(Record::Gone(gone)).await?;
        match failed {
            Some(e) => Err(unable(e)),
            None => Ok(count),
        }
    }
}
