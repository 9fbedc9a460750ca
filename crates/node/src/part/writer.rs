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
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

/// The most pieces that wait for the disk. An HTTP reader's piece is at most
/// about 400 kB, so this holds below 26 MB: a fifth of a second at 1 Gbit/s,
/// about what one sync of a busy disk takes.
const QUEUE: usize = 64;

enum Order {
    Write { offset: u64, data: Bytes },
    Tick,
}

/// Writes to a [`Part`] from asynchronous code.
pub struct Writer {
    orders: mpsc::Sender<Order>,
    result: oneshot::Receiver<Result<Part, PartError>>,
    durable: Arc<AtomicU64>,
}

/// The writer has stopped; [`Writer::finish`] says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the file could not be written")]
pub struct WriteFailed;

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system allows no further thread.
    pub fn spawn(part: Part) -> io::Result<Self> {
        let (orders, queue) = mpsc::channel(QUEUE);
        let (report, result) = oneshot::channel();
        let durable = Arc::new(AtomicU64::new(part.durable()));
        let shared = Arc::clone(&durable);
        let work = move || _ = report.send(work(part, queue, &shared));
        std::thread::Builder::new().name("part-writer".into()).spawn(work)?;
        Ok(Self { orders, result, durable })
    }

    /// Hands over bytes; waits only while the queue is full.
    ///
    /// # Errors
    /// [`WriteFailed`] if an earlier write failed.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), WriteFailed> {
        let order = Order::Write { offset, data };
        self.orders.send(order).await.map_err(|_| WriteFailed)
    }

    /// Lets the writer make a checkpoint by time although no bytes come.
    pub fn tick(&self) {
        // A full queue has writes in it, and each of them ticks, too.
        _ = self.orders.try_send(Order::Tick);
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
    mut queue: mpsc::Receiver<Order>,
    durable: &AtomicU64,
) -> Result<Part, PartError> {
    while let Some(order) = queue.blocking_recv() {
        let done = match order {
            Order::Write { offset, data } => part.write(offset, &data),
            Order::Tick => part.checkpoint_if_due(),
        };
        if let Err(error) = done {
            // The bytes before the failure are good: the first error is the one to tell.
            _ = part.checkpoint();
            durable.store(part.durable(), Ordering::Relaxed);
            _ = part.close();
            return Err(error);
        }
        durable.store(part.durable(), Ordering::Relaxed);
    }
    Ok(part)
}
