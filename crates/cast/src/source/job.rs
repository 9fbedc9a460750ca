//! The durable record of a cast at its source, in the directory `casts` of the state directory.
//!
//! ```text
//! NAME.job       the cast, its receivers, and which have the object: replaced and synced when it changes
//! NAME.progress  the progress of all receivers: replaced once a second, for `cast status`; of no use later
//! NAME.lock      locked while a process works on the job
//! ```
//!
//! The name is derived from the cast and its receivers, so that the same command continues the same job after a crash.
//! A separate thread writes the files, so that a cast does not wait for this disk.

mod clear;
mod lock;
mod recorder;

pub use clear::clear;
pub use recorder::JobRecorder;

use super::{plan::ReceiverPlan, predict::PredictedRates};
use lock::Lock;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};
use thalweg_base::{
    durable,
    job::{Job, Kind},
};
use thalweg_net::Ed25519;
use thalweg_wire::{
    Signed,
    cast::{CastId, Offer},
    mesh::Name,
};
use thiserror::Error;

/// The maximum size of a record that is read: allows some thousand receivers with all their parents.
const MAX_RECORD_BYTES: usize = 64 << 20;

/// Why a record is not available.
#[derive(Debug, Error)]
pub enum JobError {
    /// Another process is working on the job.
    #[error("this cast to the same receivers is running already")]
    Running,
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// The result of a cast at its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CastEnd {
    /// All receivers have the object.
    Complete,
    /// Some receivers have the object.
    Partial,
    /// No receiver has the object.
    Failed,
    /// The cast was stopped by the user.
    Interrupted,
    /// The cast was abandoned by a command: receivers remove the data they received.
    GivenUp,
}

/// The durable state of a receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receiver {
    /// It has the object: complete, verified, synced, under its final name.
    pub is_complete: bool,
    /// Bytes of the object that it held when the record was written.
    pub held_bytes: u64,
    /// The last failure.
    pub why: Option<String>,
    /// The failure is the receiver's own answer: it refuses the cast, or cannot continue.
    #[serde(default)]
    pub is_refused: bool,
    /// Once it has the object: its average rate of new bytes in bit/s; absent if unknown, or if the transfer took less
    /// than 0.1 s.
    #[serde(default)]
    pub rate_bps: Option<u64>,
    /// Its parents in the plan, the best first; the source has its own name.
    pub parents: Vec<Name>,
    /// The rate of the slowest hop on the widest path to it.
    pub min_hop_bps: Option<u64>,
    /// The rate that the plan expects for it.
    pub expected_bps: Option<u64>,
    /// Rates predicted by the formulas for its path in the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<PredictedRates>,
}

/// A cast at its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CastRecord {
    /// The job: from a path to the receivers.
    pub job: Job,
    /// The cast, as 32 hexadecimal digits.
    pub cast: String,
    /// Its name in the inboxes.
    pub name: String,
    /// The object, as 64 hexadecimal digits.
    pub object: String,
    /// Bytes of the object.
    pub total_bytes: u64,
    pub source: Name,
    /// The signed offer, in hexadecimal digits.
    pub offer: String,
    pub receivers: BTreeMap<Name, Receiver>,
    /// The result; absent while the cast runs, or if its process was killed.
    pub end: Option<CastEnd>,
    /// Why the object could not be served any longer, if so.
    pub why: Option<String>,
}

/// Checks that no other process works on a job. Creates nothing.
///
/// # Errors
/// [`JobError::Running`].
pub fn check_idle(directory: &Path, record: &CastRecord) -> Result<(), JobError> {
    if Lock::is_held(&record.stem(directory)) { Err(JobError::Running) } else { Ok(()) }
}

/// A record found on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedCast {
    #[serde(flatten)]
    pub record: CastRecord,
    /// Whether a process works on it.
    pub is_running: bool,
    /// The progress, in the format of the event `progress`; only while a process works on it.
    pub progress: Option<Value>,
    #[serde(skip)]
    stem: PathBuf,
}

impl ListedCast {
    /// The entry of a running cast with this progress.
    pub fn running(record: CastRecord, progress: Option<Value>) -> Self {
        Self { record, is_running: true, progress, stem: PathBuf::new() }
    }
}

impl CastRecord {
    /// The record of a cast that starts.
    pub fn begin(
        path: &Path,
        source: &Name,
        offer: &Signed<Offer>,
        parts: &BTreeMap<Name, ReceiverPlan>,
    ) -> Self {
        let value = offer.value();
        let receiver = |(name, part): (&Name, &ReceiverPlan)| {
            let parent = |of: &Option<Name>| of.clone().unwrap_or_else(|| source.clone());
            let parents = part.candidates.iter().map(|c| parent(&c.name)).collect();
            let receiver = Receiver {
                parents,
                min_hop_bps: part.min_hop_bps,
                expected_bps: part.expected_bps,
                predicted: part.predicted,
                ..Receiver::default()
            };
            (name.clone(), receiver)
        };
        let to: Vec<&str> = parts.keys().map(Name::as_str).collect();
        Self {
            job: Job::begin(Kind::Cast, path.display().to_string(), to.join(",")),
            cast: value.id(&offer.signer()).to_string(),
            name: value.name.to_string(),
            object: value.object.to_string(),
            total_bytes: value.length,
            source: source.clone(),
            offer: hex(&offer.encode()),
            receivers: parts.iter().map(receiver).collect(),
            end: None,
            why: None,
        }
    }

    /// The signed offer, if the record is valid.
    pub fn offer(&self) -> Option<Signed<Offer>> {
        let bytes = self.offer.as_bytes().as_chunks::<2>().0;
        let byte = |digits: &[u8; 2]| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = bytes.iter().map(byte).collect();
        Signed::open(&bytes?, &Ed25519).ok()
    }

    /// The cast's ID, if the record is valid.
    pub fn id(&self) -> Option<CastId> {
        self.cast.parse().ok()
    }

    /// The path of the record's files, without extension.
    fn stem(&self, directory: &Path) -> PathBuf {
        let mut hasher = blake3::Hasher::new_derive_key("thalweg cast 1 job");
        hasher.update(self.cast.as_bytes());
        for name in self.receivers.keys() {
            hasher.update(name.as_str().as_bytes()).update(b",");
        }
        directory.join(&hasher.finalize().to_hex()[..32])
    }

    /// Takes over the state that an earlier process has recorded.
    fn resume(&mut self, earlier: Self) {
        if earlier.end == Some(CastEnd::GivenUp) {
            return;
        }
        self.job = earlier.job;
        for (name, known) in earlier.receivers {
            if let Some(receiver) = self.receivers.get_mut(&name) {
                receiver.held_bytes = known.held_bytes;
                receiver.rate_bps = known.rate_bps;
            }
        }
    }

    fn write(&self, stem: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        durable::replace(&ending(stem, "job"), &bytes)
    }

    fn read(stem: &Path) -> io::Result<Option<Self>> {
        let found = durable::read(&ending(stem, "job"), MAX_RECORD_BYTES)?;
        let record: Option<Self> = found.and_then(|found| serde_json::from_slice(&found).ok());
        Ok(record.filter(|record| record.job.kind == Kind::Cast))
    }
}

/// All casts of this host, the newest last. Unreadable records are left out.
pub fn list(directory: &Path) -> Vec<ListedCast> {
    let mut found: Vec<ListedCast> =
        stems(directory, "job").filter_map(|stem| read_listed(&stem)).collect();
    found.sort_by_key(|found| found.record.job.created);
    found
}

fn read_listed(stem: &Path) -> Option<ListedCast> {
    let record = CastRecord::read(stem).ok()??;
    let is_running = Lock::is_held(stem);
    let progress = durable::read(&ending(stem, "progress"), MAX_RECORD_BYTES).ok().flatten();
    let progress = progress.filter(|_| is_running).and_then(|p| serde_json::from_slice(&p).ok());
    Some(ListedCast { record, is_running, progress, stem: stem.to_owned() })
}

/// An exclusively locked record of a cast on which no process works, to be changed and written.
pub(super) struct LockedRecord {
    pub(super) record: CastRecord,
    stem: PathBuf,
    _lock: Lock,
}

impl LockedRecord {
    /// Takes a listed job.
    pub(super) fn take(found: &ListedCast) -> Result<Self, JobError> {
        let lock = Lock::take(&found.stem)?;
        Ok(Self { record: found.record.clone(), stem: found.stem.clone(), _lock: lock })
    }

    /// Writes the changed record.
    pub(super) fn keep(&self) -> Result<(), JobError> {
        self.record.write(&self.stem).map_err(|source| failed(&self.stem, source))
    }
}

fn failed(stem: &Path, source: io::Error) -> JobError {
    JobError::Io { path: ending(stem, "job"), source }
}

fn ending(stem: &Path, ending: &str) -> PathBuf {
    stem.with_extension(ending)
}

/// The files with this extension, without it.
fn stems(directory: &Path, ending: &'static str) -> impl Iterator<Item = PathBuf> {
    let paths = fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.path());
    let its = paths.filter(move |path| path.extension() == Some(OsStr::new(ending)));
    its.map(|path| path.with_extension(""))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
