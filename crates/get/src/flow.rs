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
    /// Why the output took no more.
    refused: Mutex<Option<io::Error>>,
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
    /// # Errors
    /// [`GetError::Shown`] if they wrote bytes of another object; [`GetError::Output`] if this
    /// one is not wanted.
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
        self.admit(of)?;
        let over = Arc::new(AtomicBool::new(false));
        let (report, done) = oneshot::channel();
        let (flow, cut, handle) = (self.clone(), Arc::clone(&over), Handle::current());
        let work = move || {
            flow.write(&reader, prefix, &cut, &handle);
            _ = report.send(());
        };
        let thread = std::thread::Builder::new().name("output".into()).spawn(work);
        thread.map_err(|e| Halt::Failed(GetError::System(e)))?;
        Ok(Running { over, done })
    }

    fn admit(&self, of: Identity) -> Result<(), Halt> {
        let mut known = lock(&self.shared.of);
        let shown = self.shared.shown.load(Ordering::SeqCst);
        let proven = of.validator.is_some() && known.as_ref() == Some(&of);
        if shown > 0 && !proven {
            return Err(Halt::Failed(GetError::Shown(shown)));
        }
        *known = Some(of);
        Ok(())
    }

    fn write(
        &self,
        reader: &PartReader,
        mut prefix: watch::Receiver<u64>,
        over: &AtomicBool,
        handle: &Handle,
    ) {
        let mut open = true;
        while open {
            let there = *prefix.borrow_and_update();
            if let Err(error) = self.pass_on(reader, there, over) {
                *lock(&self.shared.refused) = Some(error);
                self.end.send_replace(true);
                return;
            }
            open = handle.block_on(prefix.changed()).is_ok();
        }
        let last = *prefix.borrow();
        if let Err(error) = self.pass_on(reader, last, over) {
            *lock(&self.shared.refused) = Some(error);
            self.end.send_replace(true);
        }
    }

    /// Writes up to `there`, or until it is over.
    fn pass_on(&self, reader: &PartReader, there: u64, over: &AtomicBool) -> io::Result<()> {
        loop {
            let at = self.shared.shown.load(Ordering::SeqCst);
            if at >= there || over.load(Ordering::SeqCst) {
                return Ok(());
            }
            let data = reader.read(at..there.min(at + PIECE)).map_err(io::Error::other)?;
            self.output.write(&data)?;
            self.shared.shown.store(at + data.len() as u64, Ordering::SeqCst);
        }
    }

    /// Bytes that were written so far.
    pub(super) fn shown(&self) -> u64 {
        self.shared.shown.load(Ordering::SeqCst)
    }

    /// Why the output took no more, if it did; told once.
    pub(super) fn refusal(&self) -> Option<GetError> {
        lock(&self.shared.refused).take().map(GetError::Output)
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
