//! The digests of the whole, computed while it is still coming.
//!
//! A thread of its own follows the gapless prefix of the file and reads it
//! back, which is from memory as it has just been written. So bytes that came
//! in another order, or in an earlier session, need no second way; the
//! writer waits for no hash; and at the end only the last few MB are left.

use super::digest::{self, Digest, Hasher};
use std::{
    fs::File,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{Builder, JoinHandle},
};

/// The thread is told of the prefix in steps of so many bytes. A shorter file gets no
/// thread: hashing 4 MB takes a few milliseconds.
const STEP: u64 = 4 << 20;

/// No prefix is that long.
const NEVER: u64 = u64::MAX;

/// Hashers, and how many bytes they have seen.
struct Progress {
    hashers: Vec<Hasher>,
    at: u64,
}

/// See the [module](self).
pub(super) struct Whole {
    digests: Vec<Digest>,
    follower: Option<Follower>,
    told: u64,
}

struct Follower {
    prefix: Option<SyncSender<u64>>,
    thread: Option<JoinHandle<io::Result<Progress>>>,
    abandoned: Arc<AtomicBool>,
}

impl Whole {
    pub(super) fn of(digests: &[Digest]) -> Self {
        Self { digests: digests.to_vec(), follower: None, told: 0 }
    }

    /// The bytes of `file` before `prefix` are there. Does not wait.
    pub(super) fn follow(&mut self, file: &File, prefix: u64) {
        if self.digests.is_empty() || prefix < self.told.saturating_add(STEP) {
            return;
        }
        self.told = prefix;
        if self.follower.is_none() {
            // Without a thread all is hashed at the end.
            self.follower = Follower::start(self.start(), file).ok();
        }
        if let Some(Follower { prefix: Some(told), .. }) = &self.follower {
            // One word waits in the channel. If this one finds no room, a later one does.
            _ = told.try_send(prefix);
        }
    }

    /// Bytes that may have been hashed change. Nothing is followed from now on: a repair
    /// comes in many small steps.
    pub(super) fn begin_again(&mut self) {
        self.follower = None;
        self.told = NEVER;
    }

    fn start(&self) -> Progress {
        Progress { hashers: self.digests.iter().map(Digest::hasher).collect(), at: 0 }
    }

    /// What the first `length` bytes of `file` hash to, in the digests' order.
    pub(super) fn finish(&mut self, file: &File, length: u64) -> io::Result<Vec<Digest>> {
        let followed = self.follower.take().map(Follower::stop).transpose()?;
        let mut progress = followed.unwrap_or_else(|| self.start());
        if progress.at > length {
            progress = self.start();
        }
        if !self.digests.is_empty() {
            digest::feed(&mut progress.hashers, file, progress.at..length)?;
        }
        Ok(progress.hashers.into_iter().map(Hasher::finish).collect())
    }
}

impl Follower {
    fn start(from: Progress, file: &File) -> io::Result<Self> {
        let file = file.try_clone()?;
        let (prefix, told) = sync_channel(1);
        let abandoned = Arc::new(AtomicBool::new(false));
        let given_up = Arc::clone(&abandoned);
        let work = move || follow(from, &file, &told, &given_up);
        let thread = Builder::new().name("part-digest".into()).spawn(work)?;
        Ok(Self { prefix: Some(prefix), thread: Some(thread), abandoned })
    }

    fn stop(mut self) -> io::Result<Progress> {
        self.prefix = None;
        let Some(thread) = self.thread.take() else { return Err(died()) };
        thread.join().unwrap_or_else(|_| Err(died()))
    }
}

/// Waits for the thread, which ends after one step at most: as long as it has the file open,
/// the file is locked.
impl Drop for Follower {
    fn drop(&mut self) {
        self.abandoned.store(true, Ordering::Relaxed);
        self.prefix = None;
        _ = self.thread.take().map(JoinHandle::join);
    }
}

fn died() -> io::Error {
    io::Error::other("the hashing thread died")
}

/// Hashes up to each prefix it is told of, until there are no more.
fn follow(
    mut progress: Progress,
    file: &File,
    told: &Receiver<u64>,
    given_up: &AtomicBool,
) -> io::Result<Progress> {
    while let Ok(prefix) = told.recv() {
        while progress.at < prefix && !given_up.load(Ordering::Relaxed) {
            let end = prefix.min(progress.at + STEP);
            digest::feed(&mut progress.hashers, file, progress.at..end)?;
            progress.at = end;
        }
    }
    Ok(progress)
}
