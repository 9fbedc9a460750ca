//! A stream of an object's bytes to the user's output, while they come or at the end.

use super::{GetError, Halt, Output, Stop};
use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use thalweg_part::{PartReader, Validator};
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
};

/// Read and written at once: the size of a large pipe.
const PIECE: u64 = 256 << 10;

/// The output of one download, over all its attempts.
///
/// A thread of its own writes: a reader that is slow or stands still holds up nobody, as the
/// bytes lie in a file meanwhile. It is not waited for when the process ends.
#[derive(Clone)]
pub(super) struct Flow {
    output: Arc<dyn Output>,
    shared: Arc<Shared>,
    /// Makes the download end: nobody reads any more.
    end: watch::Sender<bool>,
}

#[derive(Default)]
struct Shared {
    /// Bytes that were written, in all attempts.
    shown: AtomicU64,
    /// Of which object, once anything was.
    of: Mutex<Option<Identity>>,
    /// The hash of what was written.
    hash: Mutex<blake3::Hasher>,
    /// Held while a piece is written and counted: the thread of an attempt that ended may still be
    /// writing when that of the next one starts.
    writing: Mutex<()>,
    /// Why the output took no more, or gets no more.
    refused: Mutex<Option<GetError>>,
}

/// What must be the same for an output to be gone on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) length: Option<u64>,
    pub(super) validator: Option<Validator>,
}

/// The thread at work for one attempt.
pub(super) struct Running {
    over: Arc<AtomicBool>,
    done: oneshot::Receiver<()>,
}

impl Flow {
    pub(super) fn new(output: Arc<dyn Output>, end: watch::Sender<bool>) -> Self {
        Self { output, shared: Arc::default(), end }
    }

    /// Begins to write what `reader` reads, as far as `prefix` says, until its sender is gone.
    /// What earlier attempts wrote is not written again.
    ///
    /// If they wrote bytes and this object is not provably the same, it must begin with these very bytes:
    /// [`Flow::refusal`] tells if it does not.
    ///
    /// # Errors
    /// [`GetError::Output`] if this object is not wanted.
    pub(super) fn start(
        &self,
        reader: PartReader,
        prefix: watch::Receiver<u64>,
        of: Identity,
    ) -> Result<Running, Halt> {
        let tag = match &of.validator {
            Some(Validator::Etag(tag)) => Some(tag.as_str()),
            _ => None,
        };
        self.output.begins(tag).map_err(|e| Halt::Failed(GetError::Output(e)))?;
        let is_proven = self.admit(of);
        let over = Arc::new(AtomicBool::new(false));
        let (report, done) = oneshot::channel();
        let (flow, cut, handle) = (self.clone(), Arc::clone(&over), Handle::current());
        let work = move || {
            flow.write(&reader, prefix, is_proven, &cut, &handle);
            _ = report.send(());
        };
        let thread = std::thread::Builder::new().name("output".into()).spawn(work);
        thread.map_err(|e| Halt::Failed(GetError::System(e)))?;
        Ok(Running { over, done })
    }

    /// Whether this is provably the object whose bytes were written so far.
    fn admit(&self, of: Identity) -> bool {
        let mut known = lock(&self.shared.of);
        let proven = of.validator.is_some() && known.as_ref() == Some(&of);
        *known = Some(of);
        proven
    }

    /// Whether an object begins with what was written.
    fn begins_alike(&self, reader: &PartReader, over: &AtomicBool) -> io::Result<bool> {
        let shown = self.shared.shown.load(Ordering::SeqCst);
        let (mut hash, mut at) = (blake3::Hasher::new(), 0);
        while at < shown && !over.load(Ordering::SeqCst) {
            let end = shown.min(at + PIECE);
            hash.update(&reader.read(at..end).map_err(io::Error::other)?);
            at = end;
        }
        Ok(hash.finalize() == lock(&self.shared.hash).finalize())
    }

    fn write(
        &self,
        reader: &PartReader,
        mut prefix: watch::Receiver<u64>,
        mut is_proven: bool,
        over: &AtomicBool,
        handle: &Handle,
    ) {
        let mut open = true;
        while open {
            let there = *prefix.borrow_and_update();
            if let Err(error) = self.catch_up(reader, there, &mut is_proven, over) {
                return self.refuse(error);
            }
            open = handle.block_on(prefix.changed()).is_ok();
        }
        let last = *prefix.borrow();
        if let Err(error) = self.catch_up(reader, last, &mut is_proven, over) {
            self.refuse(error);
        }
    }

    fn refuse(&self, error: GetError) {
        *lock(&self.shared.refused) = Some(error);
        self.end.send_replace(true);
    }

    /// Writes up to `there`, once it is known that what was written belongs before it.
    fn catch_up(
        &self,
        reader: &PartReader,
        there: u64,
        is_proven: &mut bool,
        over: &AtomicBool,
    ) -> Result<(), GetError> {
        if !*is_proven {
            let _writing = lock(&self.shared.writing);
            let shown = self.shown();
            if there < shown {
                return Ok(());
            }
            if !self.begins_alike(reader, over).map_err(GetError::Output)? {
                // A comparison that was cut off says nothing.
                return if over.load(Ordering::SeqCst) {
                    Ok(())
                } else {
                    Err(GetError::Shown(shown))
                };
            }
        }
        *is_proven = true;
        self.pass_on(reader, there, over).map_err(GetError::Output)
    }

    /// Writes up to `there`, or until it is over.
    fn pass_on(&self, reader: &PartReader, there: u64, over: &AtomicBool) -> io::Result<()> {
        loop {
            let _writing = lock(&self.shared.writing);
            let at = self.shown();
            if at >= there || over.load(Ordering::SeqCst) {
                return Ok(());
            }
            let data = reader.read(at..there.min(at + PIECE)).map_err(io::Error::other)?;
            self.output.write(&data)?;
            lock(&self.shared.hash).update(&data);
            self.shared.shown.store(at + data.len() as u64, Ordering::SeqCst);
        }
    }

    /// Bytes that were written so far.
    pub(super) fn shown(&self) -> u64 {
        self.shared.shown.load(Ordering::SeqCst)
    }

    /// Why the output took or got no more, if so; told once.
    pub(super) fn refusal(&self) -> Option<GetError> {
        lock(&self.shared.refused).take()
    }
}

impl Running {
    /// Waits until all that is there was written.
    ///
    /// # Errors
    /// [`GetError::Interrupted`].
    pub(super) async fn finish(mut self, stop: &mut Stop) -> Result<(), Halt> {
        tokio::select! {
            _ = &mut self.done => Ok(()),
            () = stop.requested() => Err(Halt::Failed(GetError::Interrupted)),
        }
    }
}

/// An attempt that failed writes no more.
impl Drop for Running {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

/// Each holds one value that is set at once.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Condvar, time::Duration};
    use thalweg_base::job::{Job, Kind};
    use thalweg_part::{Part, PartKey};

    /// An output whose first write lasts until another one begins, or for a while.
    #[derive(Default)]
    struct Slow {
        begun: (Mutex<usize>, Condvar),
        written: Mutex<Vec<u8>>,
    }

    impl Slow {
        /// Until so many writes have begun, but no longer than this.
        fn wait(&self, count: usize, longest: Duration) {
            let begun = lock(&self.begun.0);
            _ = self.begun.1.wait_timeout_while(begun, longest, |begun| *begun < count).unwrap();
        }
    }

    impl Output for Slow {
        fn write(&self, data: &[u8]) -> io::Result<()> {
            let count = {
                let mut begun = lock(&self.begun.0);
                *begun += 1;
                *begun
            };
            self.begun.1.notify_all();
            if count == 1 {
                self.wait(2, Duration::from_millis(300));
            }
            lock(&self.written).extend_from_slice(data);
            Ok(())
        }
    }

    fn part(bytes: &[u8]) -> Part {
        let (url, length) = ("http://a/b".to_owned(), Some(bytes.len() as u64));
        let key = PartKey::Url { url, length, validator: None, digests: Vec::new() };
        let job = Job::begin(Kind::Get, String::new(), String::new());
        let mut part = Part::unnamed(None, key, job).unwrap();
        part.write(0, bytes).unwrap();
        part
    }

    #[tokio::test]
    async fn an_attempt_waits_for_the_writing_of_the_one_before() {
        let bytes = b"the bytes of the object";
        let slow = Arc::new(Slow::default());
        let flow = Flow::new(Arc::clone(&slow) as Arc<dyn Output>, watch::Sender::new(false));
        let part = part(bytes);
        let start = || {
            let (_, prefix) = watch::channel(bytes.len() as u64);
            let of = Identity { length: Some(bytes.len() as u64), validator: None };
            flow.start(part.reader().unwrap(), prefix, of).ok().unwrap()
        };
        let first = start();
        slow.wait(1, Duration::MAX);
        drop(first);
        let (_hand, mut stop) = Stop::new();
        assert!(start().finish(&mut stop).await.is_ok());
        assert!(flow.refusal().is_none());
        assert_eq!(lock(&slow.written).as_slice(), bytes);
    }
}
