//! Runs a part on a thread of its own, so that no network task waits for a sync.

use super::{Part, PartError};
use bytes::Bytes;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use thalweg_units::PathId;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

/// The most bytes that wait for the disk: 70 ms at 1 Gbit/s, within which the thread certainly gets to run. Syncs run
/// in parallel to the writing, so the queue need not bridge them. When it is full, the task of the transfer waits, and
/// with it the paths.
const QUEUE_BYTES: usize = 8 << 20;

/// The most pieces in the queue, so that many small ones do not cost more than their bytes. When it is full, the task
/// of the transfer waits as well.
const QUEUE_PIECES: usize = 1024;

enum WriteCommand {
    /// The permits are the share of the queue for these bytes, and are returned once the bytes are written.
    Write {
        from: PathId,
        offset: u64,
        data: Bytes,
        _room: OwnedSemaphorePermit,
    },
    Tick,
}

/// Writes to a [`Part`] from asynchronous code.
pub struct Writer {
    orders: mpsc::Sender<WriteCommand>,
    /// The bytes that may still be queued.
    room: Arc<Semaphore>,
    result: oneshot::Receiver<Result<Part, PartError>>,
    durable: Arc<AtomicU64>,
    prefix: watch::Receiver<u64>,
}

/// The thread's reports while it works.
struct WriterProgress {
    durable: Arc<AtomicU64>,
    prefix: watch::Sender<u64>,
}

impl WriterProgress {
    fn publish(&self, part: &Part) {
        self.durable.store(part.durable(), Ordering::Relaxed);
        self.prefix.send_if_modified(|known| {
            let before = std::mem::replace(known, part.prefix());
            before != *known
        });
    }
}

/// The writer has stopped; [`Writer::finish`] returns the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the file could not be written")]
pub struct WriteFailed;

impl Writer {
    /// Starts the thread. `names` are the names of the delivering paths, by [`PathId`].
    ///
    /// # Errors
    /// If the system allows no further thread.
    pub fn spawn(part: Part, names: Vec<String>) -> io::Result<Self> {
        let (orders, queue) = mpsc::channel(QUEUE_PIECES);
        let (report, result) = oneshot::channel();
        let durable = Arc::new(AtomicU64::new(part.durable()));
        let (tell, prefix) = watch::channel(part.prefix());
        let progress = WriterProgress { durable: Arc::clone(&durable), prefix: tell };
        let work = move || _ = report.send(work(part, &names, queue, &progress));
        std::thread::Builder::new().name("part-writer".into()).spawn(work)?;
        Ok(Self { orders, room: Arc::new(Semaphore::new(QUEUE_BYTES)), result, durable, prefix })
    }

    /// Queues bytes for writing; waits only while the queue is full.
    ///
    /// # Errors
    /// [`WriteFailed`] if an earlier write failed.
    pub async fn write(&self, from: PathId, offset: u64, data: Bytes) -> Result<(), WriteFailed> {
        // A piece larger than the queue takes all of it.
        let share = data.len().min(QUEUE_BYTES) as u32;
        let room = Arc::clone(&self.room).acquire_many_owned(share).await;
        let room = room.map_err(|_| WriteFailed)?;
        let order = WriteCommand::Write { from, offset, data, _room: room };
        self.orders.send(order).await.map_err(|_| WriteFailed)
    }

    /// Lets the writer make a checkpoint by time although no bytes arrive.
    pub fn tick(&self) {
        // A full queue contains writes, each of which checks the time too.
        _ = self.orders.try_send(WriteCommand::Tick);
    }

    /// Follows the number of bytes from the file's start that are present without a gap, written but not necessarily
    /// synced: the bytes that a stream may show. The sender is dropped once the writer has stopped; the last value is
    /// then final.
    pub fn prefix(&self) -> watch::Receiver<u64> {
        self.prefix.clone()
    }

    /// The number of bytes that would survive a crash now.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Relaxed)
    }

    /// Waits until everything is written. Returns the part or the first error, after which the part was checkpointed as
    /// far as possible and closed; and the number of bytes that would survive a crash.
    pub async fn finish(self) -> (Result<Part, PartError>, u64) {
        drop(self.orders);
        let part = self
            .result
            .await
            .unwrap_or_else(|_| Err(PartError::Thread(io::Error::other("the writer thread died"))));
        (part, self.durable.load(Ordering::Relaxed))
    }
}

fn work(
    mut part: Part,
    names: &[String],
    mut queue: mpsc::Receiver<WriteCommand>,
    progress: &WriterProgress,
) -> Result<Part, PartError> {
    while let Some(order) = queue.blocking_recv() {
        let done = match order {
            WriteCommand::Write { from, offset, data, _room } => {
                let name = names.get(from.0 as usize).map_or("", String::as_str);
                part.write_from(name, offset, &data)
            }
            WriteCommand::Tick => part.checkpoint_if_due(),
        };
        if let Err(error) = done {
            // The bytes before the failure are good, and the first error is the one to report.
            _ = part.checkpoint();
            progress.publish(&part);
            _ = part.close();
            return Err(error);
        }
        progress.publish(&part);
    }
    Ok(part)
}
