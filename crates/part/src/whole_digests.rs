//! Computes the digests of the whole file while it is still arriving.
//!
//! A separate thread follows the gapless prefix of the file and reads it back, usually from memory, because it was just
//! written. So bytes that arrive in another order, or in an earlier session, need no separate code; the writer never
//! waits for a hash; and at the end only the last few MB are left.

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

/// The thread is notified of the prefix in steps of this many bytes. A shorter file gets no thread, because hashing 4
/// MB takes only a few milliseconds.
const STEP: u64 = 4 << 20;

/// More than any prefix.
const NEVER: u64 = u64::MAX;

/// Hashers, and the number of bytes that they have seen.
struct HashProgress {
    hashers: Vec<Hasher>,
    at: u64,
}

/// See the [module](self).
pub(super) struct WholeDigests {
    digests: Vec<Digest>,
    follower: Option<Follower>,
    announced: u64,
}

struct Follower {
    prefix: Option<SyncSender<u64>>,
    thread: Option<JoinHandle<io::Result<HashProgress>>>,
    abandoned: Arc<AtomicBool>,
}

impl WholeDigests {
    pub(super) fn new(digests: &[Digest]) -> Self {
        Self { digests: digests.to_vec(), follower: None, announced: 0 }
    }

    /// Notes that the bytes of `file` before `prefix` are present. Does not block.
    pub(super) fn follow(&mut self, file: &File, prefix: u64) {
        if self.digests.is_empty() || prefix < self.announced.saturating_add(STEP) {
            return;
        }
        self.announced = prefix;
        if self.follower.is_none() {
            // Without a thread everything is hashed at the end.
            self.follower = Follower::start(self.start(), file).ok();
        }
        if let Some(Follower { prefix: Some(announced), .. }) = &self.follower {
            // The channel holds one notification. If there is no room for this one, a later one follows.
            _ = announced.try_send(prefix);
        }
    }

    /// Must be called when bytes that may have been hashed change. The file is not followed any more, because a repair
    /// makes many small steps.
    pub(super) fn stop_following(&mut self) {
        self.follower = None;
        self.announced = NEVER;
    }

    fn start(&self) -> HashProgress {
        HashProgress { hashers: self.digests.iter().map(Digest::hasher).collect(), at: 0 }
    }

    /// The digests of the first `length` bytes of `file`, in the order of the expected ones.
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
    fn start(from: HashProgress, file: &File) -> io::Result<Self> {
        let file = file.try_clone()?;
        let (prefix, announced) = sync_channel(1);
        let abandoned = Arc::new(AtomicBool::new(false));
        let given_up = Arc::clone(&abandoned);
        let work = move || follow(from, &file, &announced, &given_up);
        let thread = Builder::new().name("part-digest".into()).spawn(work)?;
        Ok(Self { prefix: Some(prefix), thread: Some(thread), abandoned })
    }

    fn stop(mut self) -> io::Result<HashProgress> {
        self.prefix = None;
        let Some(thread) = self.thread.take() else { return Err(died()) };
        thread.join().unwrap_or_else(|_| Err(died()))
    }
}

/// Waits for the thread, which ends after at most one step: the file stays locked while the thread has it open.
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

/// Hashes up to each prefix received, until the channel closes.
fn follow(
    mut progress: HashProgress,
    file: &File,
    announced: &Receiver<u64>,
    given_up: &AtomicBool,
) -> io::Result<HashProgress> {
    while let Ok(prefix) = announced.recv() {
        while progress.at < prefix && !given_up.load(Ordering::Relaxed) {
            let end = prefix.min(progress.at + STEP);
            digest::feed(&mut progress.hashers, file, progress.at..end)?;
            progress.at = end;
        }
    }
    Ok(progress)
}
