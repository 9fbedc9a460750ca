//! What is known of an answer before it comes: an honest node keeps to it.

use super::invalid;
use std::{io, time::Duration};
use thalweg_wire::object::Request;

/// So long a node may say that it is at work and nothing else. A walk through ten million files
/// without a match takes minutes.
pub(super) const PATIENCE: Duration = Duration::from_secs(3600);

/// Nor may it say so more often: serving nodes do every five seconds at the most.
pub(super) const EACH: Duration = Duration::from_secs(2);

/// The longest patience: entries of a spool live no longer either.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The slowest disk that hashes whole files, bytes a second; the time adds to [`PATIENCE`].
const HASHED: u64 = 20_000_000;

/// The slowest path from which a node fetches for others, bytes a second; in the same way.
const FETCHED: u64 = 64_000;

/// A request whose answer has not wholly come.
#[derive(Debug)]
pub(super) struct Asked {
    /// Bytes of the request.
    pub length: usize,
    /// Of reads: how many bytes each part has, if it comes.
    pub bytes: Vec<u64>,
    /// How long nothing but `Wait` may come.
    pub patience: Duration,
}

impl Asked {
    /// A request of `length` bytes.
    pub fn new(request: &Request, length: usize) -> Self {
        let bytes = match request {
            Request::Read(part) => vec![part.bytes],
            Request::ReadParts(parts) => parts.iter().map(|part| part.bytes).collect(),
            Request::ReadAll(files) => files.iter().map(|file| file.snapshot.size).collect(),
            _ => Vec::new(),
        };
        Self { length, bytes, patience: patience(request) }
    }

    /// That the part with this index has the bytes that were asked for.
    ///
    /// # Errors
    /// `InvalidData`.
    pub fn is(&self, index: usize, bytes: u64) -> io::Result<()> {
        match self.bytes.get(index) {
            Some(asked) if *asked == bytes => Ok(()),
            asked => {
                let asked = asked.copied().unwrap_or(0);
                Err(invalid(format!("it sends {bytes} bytes where {asked} were asked for")))
            }
        }
    }
}

fn patience(request: &Request) -> Duration {
    let work = match request {
        Request::Check(files) => {
            // Sizes are the other node's word: they may be anything.
            let sizes = files.iter().map(|file| file.snapshot.size);
            sizes.fold(0, u64::saturating_add) / HASHED
        }
        Request::CheckParts(parts) => {
            parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add) / HASHED
        }
        Request::Fetch { bytes, .. } => bytes / FETCHED,
        _ => 0,
    };
    PATIENCE.saturating_add(Duration::from_secs(work)).min(LONGEST)
}

/// It says that it is at work, and never comes to an end.
pub(super) fn never(patience: Duration) -> io::Error {
    let why = format!("it has only said that it is at work, for {patience:?} or far too often");
    io::Error::new(io::ErrorKind::TimedOut, why)
}
