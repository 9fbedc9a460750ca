//! Writes an object's bytes to the user's output, while they arrive or at the end.

use super::{AttemptError, GetError, Output, Stop};
use parking_lot::Mutex;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use thalweg_part::{PartReader, Validator};
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
};

/// The size of one read and write, bytes: the size of a large pipe.
const PIECE: u64 = 256 << 10;

/// The output of one download, across all its attempts.
///
/// A separate thread writes. A slow or stopped reader delays nothing else, because the bytes are in a file meanwhile.
/// The process does not wait for the thread when it ends.
#[derive(Clone)]
pub(super) struct OutputWriter {
    output: Arc<dyn Output>,
    shared: Arc<OutputState>,
    /// Ends the download when nobody reads the output any more.
    end: watch::Sender<bool>,
}

#[derive(Default)]
struct OutputState {
    /// Bytes written so far, in all attempts.
    shown: AtomicU64,
    /// The object that the bytes belong to, once an attempt has begun.
    of: Mutex<Option<ObjectIdentity>>,
    /// The hash of the written bytes.
    hash: Mutex<blake3::Hasher>,
    /// Held while a piece is written and counted: the thread of an ended attempt may still be writing when the next
    /// attempt's thread starts.
    writing: Mutex<()>,
    /// Why the output accepts no more bytes, or receives none.
    refused: Mutex<Option<GetError>>,
}

/// Identifies an object. If it is the same in the next attempt, the output may continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectIdentity {
    pub(super) length: Option<u64>,
    pub(super) validator: Option<Validator>,
}

/// The writing thread of one attempt.
pub(super) struct WriterThread {
    over: Arc<AtomicBool>,
    done: oneshot::Receiver<()>,
}

impl OutputWriter {
    pub(super) fn new(output: Arc<dyn Output>, end: watch::Sender<bool>) -> Self {
        Self { output, shared: Arc::default(), end }
    }

    /// Starts writing the bytes of `reader`, as far as `prefix` says, until the sender of `prefix` is dropped. Bytes
    /// that earlier attempts wrote are not written again.
    ///
    /// If earlier attempts wrote bytes and this object is not provably the same, it must begin with exactly these
    /// bytes; otherwise [`OutputWriter::refusal`] returns an error.
    ///
    /// # Errors
    /// [`GetError::Output`] if the output does not want this object; [`GetError::System`] if the system allows no
    /// further thread.
    pub(super) fn start(
        &self,
        reader: PartReader,
        prefix: watch::Receiver<u64>,
        of: ObjectIdentity,
    ) -> Result<WriterThread, AttemptError> {
        let tag = match &of.validator {
            Some(Validator::Etag(tag)) => Some(tag.as_str()),
            _ => None,
        };
        self.output.begins(tag).map_err(|e| AttemptError::Failed(GetError::Output(e)))?;
        let is_proven = self.admit(of);
        let over = Arc::new(AtomicBool::new(false));
        let (report, done) = oneshot::channel();
        let (flow, cut, handle) = (self.clone(), Arc::clone(&over), Handle::current());
        let work = move || {
            flow.write(&reader, prefix, is_proven, &cut, &handle);
            _ = report.send(());
        };
        let thread = std::thread::Builder::new().name("output".into()).spawn(work);
        thread.map_err(|e| AttemptError::Failed(GetError::System(e)))?;
        Ok(WriterThread { over, done })
    }

    /// Records the object. Returns whether it is provably the one whose bytes were written so far.
    fn admit(&self, of: ObjectIdentity) -> bool {
        let mut known = self.shared.of.lock();
        let proven = of.validator.is_some() && known.as_ref() == Some(&of);
        *known = Some(of);
        proven
    }

    /// Whether the object begins with the written bytes.
    fn begins_alike(&self, reader: &PartReader, over: &AtomicBool) -> io::Result<bool> {
        let shown = self.shared.shown.load(Ordering::SeqCst);
        let (mut hash, mut at) = (blake3::Hasher::new(), 0);
        while at < shown && !over.load(Ordering::SeqCst) {
            let end = shown.min(at + PIECE);
            hash.update(&reader.read(at..end).map_err(io::Error::other)?);
            at = end;
        }
        Ok(hash.finalize() == self.shared.hash.lock().finalize())
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
        *self.shared.refused.lock() = Some(error);
        self.end.send_replace(true);
    }

    /// Writes up to `there`, once the written bytes are known to be the beginning of this object.
    fn catch_up(
        &self,
        reader: &PartReader,
        there: u64,
        is_proven: &mut bool,
        over: &AtomicBool,
    ) -> Result<(), GetError> {
        if !*is_proven {
            let _writing = self.shared.writing.lock();
            let shown = self.shown();
            if there < shown {
                return Ok(());
            }
            if !self.begins_alike(reader, over).map_err(GetError::Output)? {
                // An aborted comparison proves nothing.
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

    /// Writes up to `there`, or until the attempt is over.
    fn pass_on(&self, reader: &PartReader, there: u64, over: &AtomicBool) -> io::Result<()> {
        loop {
            let _writing = self.shared.writing.lock();
            let at = self.shown();
            if at >= there || over.load(Ordering::SeqCst) {
                return Ok(());
            }
            let data = reader.read(at..there.min(at + PIECE)).map_err(io::Error::other)?;
            self.output.write(&data)?;
            self.shared.hash.lock().update(&data);
            self.shared.shown.store(at + data.len() as u64, Ordering::SeqCst);
        }
    }

    /// Bytes written so far.
    pub(super) fn shown(&self) -> u64 {
        self.shared.shown.load(Ordering::SeqCst)
    }

    /// Why the output accepts or receives no more bytes, if so. Returned only once.
    pub(super) fn refusal(&self) -> Option<GetError> {
        self.shared.refused.lock().take()
    }
}

impl WriterThread {
    /// Waits until all available bytes are written.
    ///
    /// # Errors
    /// [`GetError::Interrupted`].
    pub(super) async fn finish(mut self, stop: &mut Stop) -> Result<(), AttemptError> {
        tokio::select! {
            _ = &mut self.done => Ok(()),
            () = stop.requested() => Err(AttemptError::Failed(GetError::Interrupted)),
        }
    }
}

/// Stops the writing of an attempt that failed.
impl Drop for WriterThread {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Condvar;
    use std::time::Duration;
    use thalweg_base::job::{Job, Kind};
    use thalweg_part::{Part, PartKey};

    /// An output whose first write lasts until a second one begins, or for 300 ms.
    #[derive(Default)]
    struct Slow {
        begun: (Mutex<usize>, Condvar),
        written: Mutex<Vec<u8>>,
    }

    impl Slow {
        /// Waits until `count` writes have begun, but not longer than `longest`.
        fn wait(&self, count: usize, longest: Duration) {
            let mut begun = self.begun.0.lock();
            self.begun.1.wait_while_for(&mut begun, |begun| *begun < count, longest);
        }
    }

    impl Output for Slow {
        fn write(&self, data: &[u8]) -> io::Result<()> {
            let count = {
                let mut begun = self.begun.0.lock();
                *begun += 1;
                *begun
            };
            self.begun.1.notify_all();
            if count == 1 {
                self.wait(2, Duration::from_millis(300));
            }
            self.written.lock().extend_from_slice(data);
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
    async fn an_attempt_waits_for_the_writes_of_the_previous_one() {
        let bytes = b"the bytes of the object";
        let slow = Arc::new(Slow::default());
        let flow =
            OutputWriter::new(Arc::clone(&slow) as Arc<dyn Output>, watch::Sender::new(false));
        let part = part(bytes);
        let start = || {
            let (_, prefix) = watch::channel(bytes.len() as u64);
            let of = ObjectIdentity { length: Some(bytes.len() as u64), validator: None };
            flow.start(part.reader().unwrap(), prefix, of).ok().unwrap()
        };
        let first = start();
        slow.wait(1, Duration::MAX);
        drop(first);
        let (_hand, mut stop) = Stop::new();
        assert!(start().finish(&mut stop).await.is_ok());
        assert!(flow.refusal().is_none());
        assert_eq!(slow.written.lock().as_slice(), bytes);
    }
}
