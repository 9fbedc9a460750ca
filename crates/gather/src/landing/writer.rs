//! The threads that write. Each file belongs to one of them, so that none waits for a lock.

use super::{
    batch::Batches,
    large::LargeFiles,
    small::SmallFiles,
    state::{LandingState, TargetState},
};
use bytes::Bytes;
use std::{
    sync::Arc,
    thread::{Builder, JoinHandle},
};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// The maximum number of pieces that wait for one thread, so that many small pieces do not take more memory than their
/// bytes. When it is reached, connections wait as well.
const QUEUE: usize = 2048;

/// A command to a thread.
pub(super) enum WriteCommand {
    /// Write a piece. The permits are its share of the byte queue, and are released once it is written.
    Write {
        number: u32,
        at: u64,
        bytes: Bytes,
        _room: OwnedSemaphorePermit,
    },
    GiveUp(u32),
    /// Check for checkpoints that are due, even if nothing arrives.
    Tick,
}

/// The threads.
#[derive(Debug)]
pub(super) struct Writers {
    orders: Vec<mpsc::Sender<WriteCommand>>,
    threads: Vec<JoinHandle<()>>,
    shared: Arc<LandingState>,
}

/// The number of threads, as far as they can work in parallel: the filesystem creates names one by one, but runs the
/// rest of the five calls per file in parallel.
fn number() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4)
}

/// This many consecutive files go to the same thread, because they often share a directory, which that thread has open.
const NEIGHBOURS: u32 = 16;

impl Writers {
    /// Starts the threads. Each gets those of its large files that an earlier session began.
    pub(super) fn start(
        shared: &Arc<LandingState>,
        batches: &Arc<Batches>,
        begun: Vec<(u32, thalweg_part::ParkedPart)>,
    ) -> std::io::Result<Self> {
        let mut writers =
            Self { orders: Vec::new(), threads: Vec::new(), shared: Arc::clone(shared) };
        let number = number();
        let mut larges: Vec<LargeFiles> =
            (0..number).map(|_| LargeFiles::new(shared, number)).collect();
        for (file, parked) in begun {
            if let Some(large) = larges.get_mut(place(file, number)) {
                large.add_parked(file, parked);
            }
        }
        for large in larges {
            let (orders, queue) = mpsc::channel(QUEUE);
            let (shared, batches) = (Arc::clone(shared), Arc::clone(batches));
            let writer = Writer { small: SmallFiles::new(&shared), large, shared, batches };
            let work = move || writer.run(queue);
            writers.threads.push(Builder::new().name("landing".into()).spawn(work)?);
            writers.orders.push(orders);
        }
        Ok(writers)
    }

    /// The queue of the thread that owns this file.
    pub(super) fn queue_of(&self, number: u32) -> Option<mpsc::Sender<WriteCommand>> {
        self.orders.get(place(number, self.orders.len())).cloned()
    }

    /// Weak handles of all queues, which do not keep the threads running.
    pub(super) fn weak_queues(&self) -> Vec<mpsc::WeakSender<WriteCommand>> {
        self.orders.iter().map(mpsc::Sender::downgrade).collect()
    }

    /// Waits until all pieces handed over are written. Senders that still wait with further pieces get an error.
    pub(super) fn end(self) {
        self.shared.end();
        // A full queue wakes its thread anyway.
        self.orders.iter().for_each(|orders| _ = orders.try_send(WriteCommand::Tick));
        // A thread that panicked has written what it could.
        self.threads.into_iter().for_each(|thread| _ = thread.join());
    }
}

fn place(number: u32, threads: usize) -> usize {
    (number / NEIGHBOURS) as usize % threads.max(1)
}

struct Writer {
    shared: Arc<LandingState>,
    batches: Arc<Batches>,
    small: SmallFiles,
    large: LargeFiles,
}

impl Writer {
    fn run(mut self, mut queue: mpsc::Receiver<WriteCommand>) {
        while let Some(order) = queue.blocking_recv() {
            if self.shared.is_abandoned() {
                return;
            }
            match order {
                WriteCommand::Write { number, at, bytes, _room } => self.write(number, at, &bytes),
                WriteCommand::GiveUp(number) => self.forget(number),
                WriteCommand::Tick => self.large.tick(),
            }
            if self.shared.is_ending() {
                queue.close();
            }
        }
        if !self.shared.is_abandoned() {
            self.small.end();
            self.large.end();
        }
    }

    /// Writes a piece. Pieces of unwanted files, or after the landing has stopped, are dropped.
    fn write(&mut self, number: u32, at: u64, bytes: &[u8]) {
        let Some(target) = self.shared.target(number) else { return };
        // For a large file that was given up, pieces received before are still stored.
        let wanted = match self.shared.state(number) {
            TargetState::Waiting => true,
            TargetState::GivenUp => !target.is_small(),
            _ => false,
        };
        if !wanted || self.shared.stopped().is_some() {
            return;
        }
        let written = if target.is_small() {
            self.small.write(number, at, bytes, &self.batches)
        } else {
            self.large.write(number, at, bytes, &self.batches)
        };
        if let Err(error) = written {
            self.shared.record_error(number, error);
            if self.shared.state(number) == TargetState::Failed {
                self.forget(number);
            }
        }
    }

    fn forget(&mut self, number: u32) {
        self.small.forget(number);
        self.large.forget(number);
    }
}
