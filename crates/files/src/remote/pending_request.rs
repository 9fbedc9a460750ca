//! What is known of an answer before it arrives, and must hold for an honest node: lengths and the longest time.

use super::invalid;
use std::{io, time::Duration};
use thalweg_wire::object::{Delivery, DescribedEntry, Kind, Request, Rules, TransferHashes};

/// The longest time in which a node may send nothing but [`Reply::Wait`](thalweg_wire::object::Reply::Wait). A walk
/// through ten million files without a match takes minutes.
pub(super) const PATIENCE: Duration = Duration::from_secs(3600);

/// The shortest average interval of `Wait` messages; serving nodes send one every five seconds at most.
pub(super) const MIN_WAIT_INTERVAL: Duration = Duration::from_secs(2);

/// The longest patience, which is also the lifetime of spool entries.
const MAX_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// The rate of the slowest disk from which whole files are hashed, bytes per second; the time is added to [`PATIENCE`].
const MIN_HASH_RATE: u64 = 20_000_000;

/// The rate of the slowest path over which a node fetches for others, bytes per second; the time is added to
/// [`PATIENCE`].
const MIN_FETCH_RATE: u64 = 64_000;

/// A request without a complete answer.
#[derive(Debug)]
pub(super) struct PendingRequest {
    /// The bytes by which the request counts as sent ahead.
    pub length: usize,
    /// For reads: the bytes of each part that is sent.
    pub bytes: Vec<u64>,
    /// How long the other node may send nothing but `Wait`.
    pub patience: Duration,
}

/// The most bytes that count for a request that the other end reads completely before it sends anything, and whose
/// answer is short.
const MAX_COUNTED: usize = 1024;

impl PendingRequest {
    /// Records a request of `length` bytes.
    pub fn new(request: &Request, length: usize) -> Self {
        let length = match request {
            Request::Put { .. } | Request::Compare(..) => length.min(MAX_COUNTED),
            _ => length,
        };
        let bytes = match request {
            Request::Read(part) => vec![part.bytes],
            Request::ReadParts(parts) => parts.iter().map(|part| part.bytes).collect(),
            Request::ReadAll(files) => files.iter().map(|file| file.snapshot.size).collect(),
            _ => Vec::new(),
        };
        Self { length, bytes, patience: patience(request) }
    }

    /// Checks that the part with this index has the requested length.
    ///
    /// # Errors
    /// `InvalidData` if it does not.
    pub fn check_length(&self, index: usize, bytes: u64) -> io::Result<()> {
        match self.bytes.get(index) {
            Some(asked) if *asked == bytes => Ok(()),
            asked => {
                let asked = asked.copied().unwrap_or(0);
                Err(invalid(format!("it sent {bytes} bytes where {asked} were requested")))
            }
        }
    }
}

fn patience(request: &Request) -> Duration {
    let work = match request {
        Request::Check(files) => {
            // The other node reports the sizes, so they may have any value.
            let sizes = files.iter().map(|file| file.snapshot.size);
            sizes.fold(0, u64::saturating_add) / MIN_HASH_RATE
        }
        Request::CheckParts(parts) => {
            parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add) / MIN_HASH_RATE
        }
        Request::Compare(Delivery { rules, entries, .. }, TransferHashes(checks))
            if rules.has(Rules::WHOLE) && !checks.is_empty() =>
        {
            let sizes = entries.iter().map(|DescribedEntry(entry)| match &entry.kind {
                Kind::File { snapshot } => snapshot.size,
                _ => 0,
            });
            sizes.fold(0, u64::saturating_add) / MIN_HASH_RATE
        }
        Request::Fetch { bytes, .. } => bytes / MIN_FETCH_RATE,
        _ => 0,
    };
    PATIENCE.saturating_add(Duration::from_secs(work)).min(MAX_PATIENCE)
}

/// The error for a node that sends only `Wait` for too long or too often.
pub(super) fn wait_timeout(patience: Duration) -> io::Error {
    let why = format!("it has only reported that it is at work, for {patience:?} or too often");
    io::Error::new(io::ErrorKind::TimedOut, why)
}
