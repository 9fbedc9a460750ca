//! The execution and the end of a landing.

use super::{
    super::Changes,
    FailedItem, Report, finish,
    hard_links::FirstName,
    lock::LandingLock,
    preparation::ExistingItems,
    state::{LandingState, TargetState},
    threads::LandingThreads,
    writer::WriteCommand,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::{collections::BTreeSet, io, sync::Arc};
use thalweg_files::land::LandError;
use tokio::sync::Semaphore;

/// The maximum number of bytes that wait for the disk: half a second at 1 Gbit/s, which covers the time that a sync
/// delays file creation. When it is reached, connections are no longer read, and TCP's windows close.
const QUEUED: usize = 64 << 20;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct LandingWork {
    shared: Arc<LandingState>,
    /// The bytes that may still be queued.
    room: Arc<Semaphore>,
    /// `None` after the end.
    threads: Mutex<Option<LandingThreads>>,
    ended: Mutex<Option<Report>>,
    lock: LandingLock,
    begun: InitialState,
}

/// The state at the beginning.
#[derive(Debug)]
pub(super) struct InitialState {
    /// The number of targets to fetch; they come first.
    pub(super) fetched: usize,
    pub(super) present: ExistingItems,
    /// Directories created and attributes set before anything was fetched.
    pub(super) changes: Changes,
    /// Files that will not be here and that have further names.
    pub(super) refused: BTreeSet<FirstName>,
    pub(super) failed: Vec<FailedItem>,
}

impl LandingWork {
    pub(super) fn new(
        shared: Arc<LandingState>,
        threads: LandingThreads,
        lock: LandingLock,
        begun: InitialState,
    ) -> Self {
        let room = Arc::new(Semaphore::new(QUEUED));
        let (threads, ended) = (Mutex::new(Some(threads)), Mutex::default());
        Self { shared, room, threads, ended, lock, begun }
    }

    pub(super) fn shared(&self) -> &LandingState {
        &self.shared
    }

    pub(super) async fn write(&self, number: u32, at: u64, bytes: Bytes) -> Result<(), LandError> {
        if !self.wants(number)? || bytes.is_empty() {
            return Ok(());
        }
        // A piece larger than the queue takes the whole queue.
        let share = bytes.len().min(QUEUED) as u32;
        let room = Arc::clone(&self.room).acquire_many_owned(share).await.map_err(|_| over())?;
        let queue = self.threads.lock().as_ref().and_then(|threads| threads.queue(number));
        let order = WriteCommand::Write { number, at, bytes, _room: room };
        queue.ok_or_else(over)?.send(order).await.map_err(|_| over())
    }

    /// Whether a file's bytes are still wanted.
    fn wants(&self, number: u32) -> Result<bool, LandError> {
        if let Some(error) = self.shared.stopped() {
            return Err(error.clone());
        }
        if number as usize >= self.begun.fetched {
            return Err(self.shared.target_error(number));
        }
        match self.shared.state(number) {
            TargetState::Waiting => Ok(true),
            TargetState::Written | TargetState::Named => Ok(false),
            TargetState::Failed | TargetState::GivenUp => Err(self.shared.target_error(number)),
        }
    }

    pub(super) fn give_up(&self, number: u32, why: String) {
        self.shared.give_up(number, why);
        let queue = self.threads.lock().as_ref().and_then(|threads| threads.queue(number));
        // If the queue is full, the file is cleaned up at the end instead.
        queue.into_iter().for_each(|queue| _ = queue.try_send(WriteCommand::GiveUp(number)));
    }

    /// See [`super::Landing::finish`]. Blocks.
    pub(super) fn end(&self) -> Report {
        let mut ended = self.ended.lock();
        if let Some(report) = &*ended {
            return report.clone();
        }
        let threads = self.threads.lock().take();
        threads.into_iter().for_each(LandingThreads::end);
        self.room.close();
        let report = self.report();
        *ended = Some(report.clone());
        report
    }

    fn report(&self) -> Report {
        let shared = &self.shared;
        let mut failed = self.begun.failed.clone();
        failed.extend(shared.refused());
        let mut report = Report {
            bytes: shared.progress().values().map(|progress| progress.bytes).sum(),
            skipped: self.begun.present.files,
            links: self.begun.present.links,
            kept_bytes: shared.kept(),
            ..Report::default()
        };
        for (number, target) in (0..).zip(&shared.plan.targets) {
            match (shared.state(number), target.is_file()) {
                (TargetState::Named, true) => report.files += 1,
                (TargetState::Named, false) => report.links += 1,
                (TargetState::Failed | TargetState::GivenUp, _) => report.lost.push(number),
                _ => report.unfinished += 1,
            }
        }
        let over = report.unfinished == 0 && shared.stopped().is_none();
        let ended = finish::end(shared, over.then_some(&self.lock), &self.begun.refused);
        report.directories = ended.directories;
        report.changes = Changes {
            links: report.links.saturating_sub(self.begun.present.links),
            attributes: self.begun.changes.attributes + ended.changed,
            ..self.begun.changes
        };
        report.files += ended.linked.made;
        report.skipped += ended.linked.present;
        failed.extend(ended.linked.failed);
        failed.extend(ended.failed);
        Report { failed, stopped: shared.stopped().cloned(), ..report }
    }
}

/// Has the effect of a crash, but waits for the writes under way, so that the lock is free afterwards.
impl Drop for LandingWork {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.lock().take() {
            self.shared.abandon();
            threads.end();
        }
    }
}

fn over() -> LandError {
    let why = "the collection has ended: nothing more is written".into();
    LandError::All { why, kind: io::ErrorKind::BrokenPipe }
}
