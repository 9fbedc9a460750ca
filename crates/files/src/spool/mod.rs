//! The spool: data of other members that this node relays, as entries on disk within a bound.
//!
//! An entry belongs to the member that requested it, and lives until its owner drops it: at most a day, and ten minutes
//! once the owner has no open channel. Complete entries survive a restart; all other files in the directory are removed
//! at the start.

mod collector;
mod entry;
mod filling;
mod holdings;
mod reading;
mod state;
#[cfg(test)]
mod tests;

pub use entry::SpooledPart;
pub use filling::Filling;
pub use reading::SpoolReading;

use entry::{Label, failure_of};
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::registry::Registry;
use state::Index;
use std::{
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use thalweg_base::{clock::WallClock, space::KeepFree};
use thalweg_units::{ByteSize, NodeId};
use thalweg_wire::object::{Failure, JobId, MAX_NOTE, SpoolId};

/// How often expired entries are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The spool; cheap to clone.
#[derive(Clone, Debug)]
pub struct Spool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    bound: u64,
    keep_free: KeepFree,
    clock: WallClock,
    held: Mutex<Index>,
}

/// An open channel of a member; its entries are kept as long as one is open.
#[derive(Debug)]
pub struct Visit {
    spool: Spool,
    owner: NodeId,
}

impl Spool {
    /// Opens the spool in `dir`. It takes at most `bound` bytes and leaves this much free space on the disk. Removes
    /// incomplete and expired entries.
    ///
    /// # Errors
    /// If the directory cannot be created or read.
    pub fn open(
        dir: &Path,
        bound: ByteSize,
        keep_free: KeepFree,
        clock: WallClock,
    ) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let mut held = Index::new(clock.now());
        for found in std::fs::read_dir(dir)? {
            let path = found?.path();
            let label = label(&path);
            match label {
                Some((label, length)) if held.is_young(label.since, clock.now()) => {
                    held.add_existing(&label, length);
                }
                _ => std::fs::remove_file(&path)?,
            }
        }
        let (dir, held) = (dir.to_owned(), Mutex::new(held));
        Ok(Self(Arc::new(Inner { dir, bound: bound.as_bytes(), keep_free, clock, held })))
    }

    /// Begins an entry of at most `bytes` bytes for `owner`. The owner gets the note back when it asks for its
    /// [`holdings`](Self::holdings).
    ///
    /// # Errors
    /// [`Failure::Full`] if there is no room for it now. [`Failure::System`] for system errors, if the owner has an
    /// entry with this id, or if the note is longer than [`MAX_NOTE`].
    pub fn begin(
        &self,
        owner: NodeId,
        id: SpoolId,
        bytes: u64,
        note: Vec<u8>,
    ) -> Result<Filling, Failure> {
        if note.len() > MAX_NOTE {
            return Err(Failure::System(format!("a note has at most {MAX_NOTE} bytes")));
        }
        self.sweep();
        self.check_disk(bytes, 1)?;
        let label = Label { owner, id, since: self.0.clock.now(), parts: Vec::new(), note };
        if !self.lock().begin(&label, bytes, self.0.bound)? {
            return Err(Failure::Full(bytes));
        }
        let path = self.path(owner, id).with_extension(UNFINISHED);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        match options.open(&path) {
            Ok(file) => Ok(Filling::new(self.clone(), file, path, label, bytes)),
            Err(e) => {
                self.record_abandoned(&label);
                Err(failure_of("create", &e))
            }
        }
    }

    /// Opens an entry of `owner` for reading.
    ///
    /// # Errors
    /// [`Failure::NoSpool`], [`Failure::System`].
    pub fn read(&self, owner: NodeId, id: SpoolId) -> Result<SpoolReading, Failure> {
        if !self.lock().is_whole(owner, id) {
            return Err(Failure::NoSpool);
        }
        let file = File::open(self.path(owner, id)).map_err(|e| failure_of("open", &e))?;
        let label = Label::read(&file).map_err(|e| failure_of("read", &e))?;
        Ok(SpoolReading::new(file, label.parts))
    }

    /// Removes entries of `owner`.
    pub fn forget(&self, owner: NodeId, ids: &[SpoolId]) {
        for id in ids {
            let known = self.lock().remove(owner, *id);
            if known {
                _ = std::fs::remove_file(self.path(owner, *id));
            }
        }
    }

    /// Removes all complete entries of a job of `owner`, and resets its peak.
    pub fn forget_job(&self, owner: NodeId, job: JobId) {
        let ids = self.lock().entries_of_job(owner, job);
        self.forget(owner, &ids);
        self.lock().reset_peak(owner, job);
    }

    /// Records that a channel of this member is open, until the visit is dropped.
    pub fn visit(&self, owner: NodeId) -> Visit {
        self.lock().enter(owner);
        Visit { spool: self.clone(), owner }
    }

    /// The bytes used on disk.
    pub fn used(&self) -> u64 {
        self.lock().used()
    }

    /// Removes expired entries every minute. Runs until the future is dropped.
    pub async fn sweep_periodically(self) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            self.sweep();
        }
    }

    /// Registers gauges with `registry`, as `thalweg_files_spool_…`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(collector::Gauges(self.clone())));
    }

    /// Removes expired entries, and those whose owner is absent.
    fn sweep(&self) {
        let old = self.lock().take_expired(self.0.clock.now());
        for (owner, id) in old {
            self.forget(owner, &[id]);
        }
    }

    /// The path of an entry. It includes the owner, since owners choose the ids of their entries.
    fn path(&self, owner: NodeId, id: SpoolId) -> PathBuf {
        let mut hasher = blake3::Hasher::new();
        hasher.update(owner.as_bytes()).update(&id.job.0).update(&id.number.to_be_bytes());
        self.0.dir.join(&hasher.finalize().to_hex()[..32])
    }

    /// Takes room for a part: `bytes` of data, and `beside` for its place in the label.
    fn record_received(&self, label: &Label, bytes: u64, beside: u64) -> Result<(), Failure> {
        self.check_disk(bytes, 0)?;
        let mut held = self.lock();
        if !held.take(label, bytes.saturating_add(beside), self.0.bound) {
            return Err(Failure::Full(bytes));
        }
        held.record_received(label, bytes);
        Ok(())
    }

    /// Checks the free space on the disk: other programs write to it too, perhaps the oracle's database.
    fn check_disk(&self, bytes: u64, files: u64) -> Result<(), Failure> {
        match self.0.keep_free.shortage_at(&self.0.dir, bytes, files) {
            Some(_) => Err(Failure::Full(bytes)),
            None => Ok(()),
        }
    }

    fn record_finished(&self, label: &Label, length: u64) {
        self.lock().record_finished(label, length);
    }

    fn record_abandoned(&self, label: &Label) {
        self.lock().remove(label.owner, label.id);
    }

    /// The peak of a job: the most bytes that the spool held for it at a time.
    pub fn peak(&self, owner: NodeId, job: JobId) -> u64 {
        self.lock().peak(owner, job)
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.0.held.lock()
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let now = self.spool.0.clock.now();
        self.spool.lock().leave(self.owner, now);
    }
}

/// The extension of incomplete files.
const UNFINISHED: &str = "part";

/// The label and the file length of a complete entry; `None` for other files.
fn label(path: &Path) -> Option<(Label, u64)> {
    if path.extension().is_some() {
        return None;
    }
    let file = File::open(path).ok()?;
    Some((Label::read(&file).ok()?, file.metadata().ok()?.size()))
}
