//! Starts and ends the threads of a landing.

use super::{
    batch::Batches,
    state::LandingState,
    writer::{WriteCommand, Writers},
};
use std::{
    io,
    sync::{Arc, OnceLock},
    thread::JoinHandle,
};
use thalweg_part::ParkedPart;
use tokio::sync::mpsc::{Sender, WeakSender};

/// The writer threads and the sync thread.
#[derive(Debug)]
pub(super) struct LandingThreads {
    writers: Writers,
    batches: Arc<Batches>,
    syncing: JoinHandle<()>,
}

/// The sync thread alone, before it is known which files the writers resume.
#[derive(Debug)]
pub(super) struct SyncThread {
    shared: Arc<LandingState>,
    pub(super) batches: Arc<Batches>,
    syncing: JoinHandle<()>,
    ticked: Arc<OnceLock<Vec<WeakSender<WriteCommand>>>>,
}

impl SyncThread {
    pub(super) fn start(shared: &Arc<LandingState>) -> io::Result<Self> {
        let ticked: Arc<OnceLock<Vec<WeakSender<WriteCommand>>>> = Arc::default();
        let known = Arc::clone(&ticked);
        let tick = move || {
            let queues = known.get().into_iter().flatten().filter_map(WeakSender::upgrade);
            // A writer whose queue is full needs no tick.
            queues.for_each(|queue| _ = queue.try_send(WriteCommand::Tick));
        };
        let (batches, syncing) = Batches::start(shared, tick)?;
        let shared = Arc::clone(shared);
        Ok(Self { shared, batches: Arc::new(batches), syncing, ticked })
    }

    /// Starts the writers. If that fails, the sync thread ends too.
    pub(super) fn join(self, begun: Vec<(u32, ParkedPart)>) -> io::Result<LandingThreads> {
        let Self { shared, batches, syncing, ticked } = self;
        match Writers::start(&shared, &batches, begun) {
            Ok(writers) => {
                _ = ticked.set(writers.weak_queues());
                Ok(LandingThreads { writers, batches, syncing })
            }
            Err(error) => {
                shared.abandon();
                batches.end();
                _ = syncing.join();
                Err(error)
            }
        }
    }
}

impl LandingThreads {
    /// The queue of the thread that owns a file.
    pub(super) fn queue(&self, number: u32) -> Option<Sender<WriteCommand>> {
        self.writers.queue_of(number)
    }

    /// Waits until everything handed over is on the disk under its name; after an abandonment, only for the writes
    /// under way.
    pub(super) fn end(self) {
        self.writers.end();
        self.batches.end();
        // A thread that panicked has stopped the whole landing.
        _ = self.syncing.join();
    }
}
