//! The spool: the submissions that a node stores for a box, with data, receipts, and which receipts the destination
//! has.
//!
//! ```text
//! push ─► part/ID ─ matches? ─► data/xx/ID ─► `held`: receipt ─► client, outbox ─► destination
//! ```
//!
//! Before a receipt is given, its data, the data's name and the receipt itself are durable: the journal syncs the
//! data's filesystem before each group of receipts.

mod admission;
mod client_reader;
mod incomplete;
mod push;
mod record;
mod state;
#[cfg(test)]
mod tests;

pub(super) use push::{Push, push};
pub(super) use record::Record;
pub use state::SpoolCounts;

use incomplete::IncompleteData;
use state::State;

use super::{
    files::BoxFiles,
    journal::{self, Journal},
};
use parking_lot::{Mutex, MutexGuard};
use std::{fs, io, path::Path, sync::Arc};
use thalweg_net::PrivateKey;
use thalweg_wire::{
    Signed, Signer as _,
    bistro::{Receipt, ReceiptDelivery, Refusal, StampId},
    mesh::Name,
};
use tokio::sync::Notify;

/// The spool of one box at a node.
#[derive(Debug)]
pub(super) struct Spool {
    pub files: BoxFiles,
    key: Arc<PrivateKey>,
    me: Name,
    /// The maximum size of all data, bytes: complete, arriving and incomplete.
    max_total: u64,
    /// Returns the free bytes of a filesystem.
    free: fn(&Path) -> u64,
    journal: Journal,
    state: Mutex<State>,
    /// Signals that there are receipts to deliver to the destination.
    pub news: Notify,
}

/// Counts the stored data from the files alone, for commands while no daemon runs.
///
/// # Errors
/// Returns a system error.
pub(super) fn count(files: &BoxFiles) -> io::Result<SpoolCounts> {
    let mut state = State::default();
    state.replay(&journal::read(&files.held())?.records);
    Ok(state.counts())
}

impl Spool {
    /// Opens a box's directory, and deletes expired incomplete data.
    ///
    /// # Errors
    /// Returns a system error.
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
        // The journal of another key stays unchanged: `Journal::open` refuses it.
        if found.head.as_deref() == Some(head.as_bytes())
            && state.is_worth_compacting(&found.records)
        {
            journal::rewrite(&files.held(), head.as_bytes(), &state.records())?;
        }
        let (journal, _) = Journal::open(&files.held(), head.as_bytes(), Some(files.data()))?;
        state.incomplete = IncompleteData::find(&files)?;
        let (state, news) = (Mutex::new(state), Notify::new());
        Ok(Self { files, key, me, max_total, free: admission::free, journal, state, news })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub fn counts(&self) -> SpoolCounts {
        self.lock().counts()
    }

    /// The receipt of this submission, if this node stores its data or has stored it.
    pub fn receipt(&self, id: &StampId) -> Option<Vec<u8>> {
        self.lock().receipt(id)
    }

    /// Signs and records the receipt of data that is complete under its name.
    pub async fn sign_receipt(
        &self,
        mut delivery: ReceiptDelivery,
        bytes: u64,
    ) -> Result<Vec<u8>, Refusal> {
        let id = StampId::from_encoded(&delivery.stamp);
        let time = thalweg_base::clock::WallClock::default().now();
        let receipt = Receipt { stamp: id, node: self.me.clone(), time };
        delivery.receipt = Signed::sign(receipt, &*self.key).encode();
        let record = Record::Held { id, bytes, delivery: delivery.clone() };
        self.write(record).await?;
        self.news.notify_one();
        Ok(delivery.receipt)
    }

    /// Makes a record durable, and applies it.
    async fn write(&self, record: Record) -> Result<(), Refusal> {
        let written = self.journal.append(vec![record.encode()]).await;
        written.map_err(|e| Refusal::Unable(format!("write its records: {e}")))?;
        self.lock().apply(record);
        Ok(())
    }

    /// Receipts that the destination does not have, limited in number and size.
    pub fn undelivered_receipts(
        &self,
        count: usize,
        bytes: usize,
    ) -> Vec<(StampId, ReceiptDelivery)> {
        let state = self.lock();
        let mut left = bytes;
        let size = |d: &ReceiptDelivery| d.stamp.len() + d.receipt.len() + d.path.len() + 64;
        let all = state.untold.iter().filter_map(|id| Some((*id, state.held.get(id)?)));
        let some = all.map(|(id, held)| (id, held.delivery.clone())).take(count);
        let fits = |(_, delivery): &(StampId, ReceiptDelivery)| {
            let fits = size(delivery) <= left;
            left = left.saturating_sub(size(delivery));
            fits
        };
        some.take_while(fits).collect()
    }

    /// Records that the destination has these receipts.
    pub async fn record_delivered(&self, ids: Vec<StampId>) -> Result<(), Refusal> {
        self.write(Record::Told(ids)).await
    }

    /// Records that the destination has denied these receipts. They are not sent again; the denials are passed to the
    /// clients.
    pub async fn record_denials(&self, all: Vec<(StampId, Vec<u8>)>) -> Result<(), Refusal> {
        self.write(Record::Denied(all)).await
    }

    /// The destination's denial of this node's receipt, a `Signed<Denial>`.
    pub fn denial(&self, id: &StampId) -> Option<Vec<u8>> {
        self.lock().denial(id)
    }

    /// Deletes data that the destination has collected. Returns the number of deleted submissions.
    ///
    /// Data that cannot be deleted stays recorded, and the destination requests the deletion again.
    pub async fn delete(&self, ids: Vec<StampId>) -> Result<u32, Refusal> {
        let here: Vec<_> = {
            let state = self.lock();
            let here = |id: &StampId| state.held.contains_key(id);
            ids.into_iter().filter(here).collect()
        };
        let files = self.files.clone();
        let removing = move || {
            let (mut gone, mut failed) = (Vec::new(), None);
            for id in here {
                match fs::remove_file(files.data_path(&id)) {
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
