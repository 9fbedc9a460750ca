//! A part on a thread of its own, so that no network task waits for a sync.

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

/// The most bytes that wait for the disk: 70 ms at 1 Gbit/s, in which a thread surely has
/// its turn. The syncs are beside the writing, so nothing longer is to be bridged. When it is full,
/// the task of the transfer waits, and with it the paths.
const QUEUED: usize = 8 << 20;

/// The most pieces, so that many small ones do not cost more than their bytes. When it is full, the
/// task of the transfer waits as well.
const QUEUE: usize = 1024;

enum Order {
    /// The permits are its bytes' share of the queue; they come back once it is written.
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
    orders: mpsc::Sender<Order>,
    /// The bytes that may still be queued.
    room: Arc<Semaphore>,
    result: oneshot::Receiver<Result<Part, PartError>>,
    durable: Arc<AtomicU64>,
    prefix: watch::Receiver<u64>,
}

/// What the thread tells while it works.
struct Progress {
    durable: Arc<AtomicU64>,
    prefix: watch::Sender<u64>,
}

impl Progress {
    fn of(&self, part: &Part) {
        self.durable.store(part.durable(), Ordering::Relaxed);
        self.prefix.send_if_modified(|known| {
            let before = std::mem::replace(known, part.prefix());
            before != *known
        });
    }
}

/// The writer has stopped; [`Writer::finish`] says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the file could not be written")]
pub struct WriteFailed;

impl Writer {
    /// Starts the thread. `names` are those of the paths that bytes come by, by [`PathId`].
    ///
    /// # Errors
    /// If the system allows no further thread.
    pub fn spawn(part: Part, names: Vec<String>) -> io::Result<Self> {
        let (orders, queue) = mpsc::channel(QUEUE);
        let (report, result) = oneshot::channel();
        let durable = Arc::new(AtomicU64::new(part.durable()));
        let (tell, prefix) = watch::channel(part.prefix());
        let progress = Progress { durable: Arc::clone(&durable), prefix: tell };
        let work = move || _ = report.send(work(part, &names, queue, &progress));
        std::thread::Builder::new().name("part-writer".into()).spawn(work)?;
        Ok(Self { orders, room: Arc::new(Semaphore::new(QUEUED)), result, durable, prefix })
    }

    /// Hands over bytes; waits only while the queue is full.
    ///
    /// # Errors
    /// [`WriteFailed`] if an earlier write failed.
    pub async fn write(&self, from: PathId, offset: u64, data: Bytes) -> Result<(), WriteFailed> {
        // One that is larger than the queue takes all of it.
        let share = data.len().min(QUEUED) as u32;
        let room = Arc::clone(&self.room).acquire_many_owned(share).await;
        let room = room.map_err(|_| WriteFailed)?;
        let order = Order::Write { from, offset, data, _room: room };
        self.orders.send(order).await.map_err(|_| WriteFailed)
    }

    /// Lets the writer make a checkpoint by time although no bytes come.
    pub fn tick(&self) {
        // A full queue has writes in it, and each of them ticks, too.
        _ = self.orders.try_send(Order::Tick);
    }

    /// Follows how many bytes from the file's start on are there without a gap, written but
    /// not necessarily synced: what a stream may show. Its sender is gone once the writer
    /// has stopped; the last value then is how far it came.
    pub fn prefix(&self) -> watch::Receiver<u64> {
        self.prefix.clone()
    }

    /// Bytes that would survive a crash now.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Relaxed)
    }

    /// Waits until all is written and gives the part back, or the first
    /// failure; the part was then checkpointed as far as possible and closed.
    /// Beside it, the bytes that would survive a crash.
    pub async fn finish(self) -> (Result<Part, PartError>, u64) {
        drop(self.orders);
        let part = self.result.await.unwrap_or_else(|_| {
            let source = io::Error::other("the writer thread died");
            Err(PartError::Io { what: "write", path: std::path::PathBuf::new(), source })
        });
        (part, self.durable.load(Ordering::Relaxed))
    }
}

fn work(
    mut part: Part,
    names: &[String],
    mut queue: mpsc::Receiver<Order>,
    progress: &Progress,
) -> Result<Part, PartError> {
    while let Some(order) = queue.blocking_recv() {
        let done = match order {
            Order::Write { from, offset, data, _room } => {
                let name = names.get(from.0 as usize).map_or("", String::as_str);
                part.write_from(name, offset, &data)
            }
            Order::Tick => part.checkpoint_if_due(),
        };
        if let Err(error) = done {
            // The bytes before the failure are good: the first error is the one to tell.
            _ = part.checkpoint();
            progress.of(&part);
            _ = part.close();
            return Err(error);
        }
        progress.of(&part);
    }
    Ok(part)
}
