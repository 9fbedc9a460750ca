//! The durable record of a cast at its source, in the state directory's `casts`.
//!
//! ```text
//! NAME.job       what is cast to whom, and who has it: replaced, and synced, when that changes
//! NAME.progress  how far all are: replaced once a second, for who looks; of no use later
//! NAME.lock      locked as long as a process works at it
//! ```
//!
//! The name is made of the cast and its receivers, so that the same command after a crash goes on
//! with the same job. Files are written by a thread of their own: a cast does not wait for this disk.

mod clear;
mod keeper;
mod lock;

pub use clear::clear;
pub use keeper::Keeper;

use super::{plan::Part, predict::Predicted};
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

/// The longest record that is read back: some thousand receivers with all their parents.
const MOST: usize = 64 << 20;

/// A record cannot be had.
#[derive(Debug, Error)]
pub enum JobError {
    /// Another process has it.
    #[error("this cast to the same receivers is running already")]
    Running,
    /// The system's answer.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// How a cast ended at its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// All have it.
    Complete,
    /// Some have it.
    Partial,
    /// Nobody has it.
    Failed,
    /// It was told to stop.
    Interrupted,
    /// By command: receivers throw away what came.
    GivenUp,
}

/// A receiver, as far as it must outlive the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receiver {
    /// It has it: complete, verified, synced, named.
    pub is_complete: bool,
    /// What it held when that was last kept.
    pub held_bytes: u64,
    /// What went wrong with it the last time.
    pub why: Option<String>,
    /// That was its own word: it does not take it, or cannot.
    #[serde(default)]
    pub is_refused: bool,
    /// Once it has it: new bytes over its own span, in bits a second; absent: not known, or less than
    /// 0.1 s.
    #[serde(default)]
    pub rate_bps: Option<u64>,
    /// Its parents by the plan, the best first; the source by its own name.
    pub parents: Vec<Name>,
    /// The slowest hop on the widest way to it.
    pub min_hop_bps: Option<u64>,
    /// What the plan expects it to get.
    pub expected_bps: Option<u64>,
    /// What the formulas say of the way of first parents to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Predicted>,
}

/// A cast at its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// From a path to receivers.
    pub job: Job,
    /// The cast, as 32 hexadecimal digits.
    pub cast: String,
    /// Its name in the inboxes.
    pub name: String,
    /// The object, as 64 hexadecimal digits.
    pub object: String,
    /// Bytes of the object.
    pub total_bytes: u64,
    /// Who casts.
    pub source: Name,
    /// The signed offer, in hexadecimal digits.
    pub offer: String,
    /// To whom.
    pub receivers: BTreeMap<Name, Receiver>,
    /// How it ended; absent: it runs, or its process was killed.
    pub end: Option<End>,
    /// Why, if the object cannot be given any more.
    pub why: Option<String>,
}

/// A record that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// It.
    #[serde(flatten)]
    pub record: Record,
    /// Whether a process works at it.
    pub is_running: bool,
    /// How far all are, as the event `progress` says it; only while a process works at it.
    pub progress: Option<Value>,
    #[serde(skip)]
    stem: PathBuf,
}

impl Listed {
    /// One that runs, and is this far.
    pub fn of(record: Record, progress: Option<Value>) -> Self {
        Self { record, is_running: true, progress, stem: PathBuf::new() }
    }
}

impl Record {
    /// Of a cast that begins.
    pub fn begin(
        path: &Path,
        source: &Name,
        offer: &Signed<Offer>,
        parts: &BTreeMap<Name, Part>,
    ) -> Self {
        let value = offer.value();
        let receiver = |(name, part): (&Name, &Part)| {
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

    /// The offer as it was signed, if it is whole.
    pub fn offer(&self) -> Option<Signed<Offer>> {
        let bytes = self.offer.as_bytes().as_chunks::<2>().0;
        let byte = |digits: &[u8; 2]| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = bytes.iter().map(byte).collect();
        Signed::open(&bytes?, &Ed25519).ok()
    }

    /// The cast, if the record is whole.
    pub fn id(&self) -> Option<CastId> {
        self.cast.parse().ok()
    }

    /// The name of its files, without an ending.
    fn stem(&self, directory: &Path) -> PathBuf {
        let mut hasher = blake3::Hasher::new_derive_key("thalweg cast 1 job");
        hasher.update(self.cast.as_bytes());
        for name in self.receivers.keys() {
            hasher.update(name.as_str().as_bytes()).update(b",");
        }
        directory.join(&hasher.finalize().to_hex()[..32])
    }

    /// Takes over what an earlier process has found out.
    fn resume(&mut self, earlier: Self) {
        if earlier.end == Some(End::GivenUp) {
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
        let found = durable::read(&ending(stem, "job"), MOST)?;
        let record: Option<Self> = found.and_then(|found| serde_json::from_slice(&found).ok());
        Ok(record.filter(|record| record.job.kind == Kind::Cast))
    }
}

/// All casts of this host; the newest last. What cannot be read is left out.
pub fn list(directory: &Path) -> Vec<Listed> {
    let mut found: Vec<Listed> = stems(directory, "job").filter_map(|stem| listed(&stem)).collect();
    found.sort_by_key(|found| found.record.job.created);
    found
}

fn listed(stem: &Path) -> Option<Listed> {
    let record = Record::read(stem).ok()??;
    let is_running = Lock::is_held(stem);
    let progress = durable::read(&ending(stem, "progress"), MOST).ok().flatten();
    let progress = progress.filter(|_| is_running).and_then(|p| serde_json::from_slice(&p).ok());
    Some(Listed { record, is_running, progress, stem: stem.to_owned() })
}

/// Marks a cast as given up, as long as nobody works at it; the lock, until that is kept.
pub(super) struct Held {
    /// It.
    pub(super) record: Record,
    stem: PathBuf,
    _lock: Lock,
}

impl Held {
    /// Takes a listed job.
    pub(super) fn take(found: &Listed) -> Result<Self, JobError> {
        let lock = Lock::take(&found.stem)?;
        Ok(Self { record: found.record.clone(), stem: found.stem.clone(), _lock: lock })
    }

    /// Keeps what was changed.
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

/// Files with this ending, without it.
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
