//! Stores files at another node, and compares, links and removes them there.

use super::{Remote, RemoteError, unexpected};
use bytes::Bytes;
use std::ops::Range;
use thalweg_wire::object::{
    Comparison, Delivery, DescribedEntry, Entry, FailedEntries, FileRef, Links, Owners, PathState,
    ReadRequest, RemovalReport, Reply, Request, Rules, SurplusRemoval, TransferHash,
    TransferHashes,
};

/// The most comparisons, or deliveries, without an answer: both ends' socket buffers hold this many answers.
pub const AHEAD: usize = 3;

impl Remote {
    /// Writes a part of a file below the directory `into`, at most [`MAX_STORE`](thalweg_wire::object::MAX_STORE) bytes
    /// at a time.
    ///
    /// Parts may be stored in any order and over several channels. A crash at either end loses at most the last
    /// seconds' bytes ([`Remote::held`] returns what is stored). The file gets its final name and is durable once the
    /// last missing part is stored.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn store(
        &mut self,
        into: &[u8],
        entry: &Entry,
        from: u64,
        bytes: &[u8],
    ) -> Result<(), RemoteError> {
        self.ask_store(into, entry, from, Bytes::copy_from_slice(bytes)).await?;
        self.receive_stored().await
    }

    /// Sends a part without waiting until it is stored, so that the next one can follow at once.
    ///
    /// # Errors
    /// [`RemoteError::Lost`].
    pub async fn ask_store(
        &mut self,
        into: &[u8],
        entry: &Entry,
        from: u64,
        bytes: Bytes,
    ) -> Result<(), RemoteError> {
        let check = TransferHash(*blake3::hash(&bytes).as_bytes());
        let (into, entry) = (into.to_vec(), entry.clone());
        let request = Request::Store { into, entry, from, bytes: bytes.len() as u64, check };
        self.ask_with(&request, bytes).await
    }

    /// Like [`Remote::ask_store`], with all fields of the entry, the rules and the names of owners.
    ///
    /// # Errors
    /// [`RemoteError::Lost`].
    pub async fn ask_store_part(
        &mut self,
        into: &[u8],
        entry: &Entry,
        (rules, owners): (Rules, Owners),
        from: u64,
        bytes: Bytes,
    ) -> Result<(), RemoteError> {
        let check = TransferHash(*blake3::hash(&bytes).as_bytes());
        let (into, entry) = (into.to_vec(), DescribedEntry(entry.clone()));
        let count = bytes.len() as u64;
        let request = Request::StorePart { into, entry, rules, owners, from, bytes: count, check };
        self.ask_with(&request, bytes).await
    }

    /// Asks which items exist at the paths of a delivery; at most [`AHEAD`] such requests may be unanswered.
    ///
    /// # Errors
    /// [`RemoteError::Lost`].
    pub async fn ask_compare(
        &mut self,
        delivery: Delivery,
        checks: Vec<TransferHash>,
    ) -> Result<(), RemoteError> {
        self.ask(&Request::Compare(delivery, TransferHashes(checks))).await
    }

    /// Receives the answer to the oldest unanswered [`Remote::ask_compare`], which was for this many entries.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn receive_comparison(&mut self, entries: usize) -> Result<Comparison, RemoteError> {
        match self.reply().await? {
            Reply::Compared(compared) if is_of(&compared, entries) => Ok(compared),
            _ => Err(self.tear()),
        }
    }

    /// Sends a delivery with the bytes of its files, at most [`MAX_STORE`](thalweg_wire::object::MAX_STORE); at most
    /// [`AHEAD`] such requests may be unanswered.
    ///
    /// # Errors
    /// [`RemoteError::Lost`].
    pub async fn ask_put(&mut self, delivery: Delivery, bytes: Bytes) -> Result<(), RemoteError> {
        let check = TransferHash(*blake3::hash(&bytes).as_bytes());
        let request = Request::Put { delivery, bytes: bytes.len() as u64, check };
        self.ask_with(&request, bytes).await
    }

    /// Receives the answer to the oldest unanswered delivery: the entries that failed.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn receive_delivery_result(&mut self) -> Result<FailedEntries, RemoteError> {
        match self.reply().await? {
            Reply::Delivered(undone) => Ok(undone),
            _ => Err(self.tear()),
        }
    }

    /// Sets modes and times of directories. Returns the entries that failed, and those that keep a wider mode.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn set_metadata(
        &mut self,
        delivery: Delivery,
    ) -> Result<(FailedEntries, FailedEntries), RemoteError> {
        match self.request(&Request::Dress(delivery)).await? {
            Reply::Dressed { undone, wider } => Ok((undone, wider)),
            _ => Err(self.tear()),
        }
    }

    /// Creates hard links, or only checks which would fail. Returns how many exist already, and those that failed.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn link(&mut self, links: Links) -> Result<(u64, FailedEntries), RemoteError> {
        match self.request(&Request::Link(links)).await? {
            Reply::Linked { present, undone } => Ok((present, undone)),
            _ => Err(self.tear()),
        }
    }

    /// Removes names of a directory, or only reports which would be removed.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn clear(&mut self, surplus: SurplusRemoval) -> Result<RemovalReport, RemoteError> {
        match self.request(&Request::Clear(surplus)).await? {
            Reply::Cleared(removed) => Ok(removed),
            _ => Err(self.tear()),
        }
    }

    /// Receives the answer to the oldest unanswered part.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn receive_stored(&mut self) -> Result<(), RemoteError> {
        match self.reply().await? {
            Reply::Stored => Ok(()),
            _ => Err(self.tear()),
        }
    }

    /// Returns the ranges of a file that are stored at the other node.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn held(
        &mut self,
        into: &[u8],
        entry: &Entry,
    ) -> Result<Vec<Range<u64>>, RemoteError> {
        self.ask_held(into, entry).await?;
        self.receive_held().await
    }

    /// Sends the request of [`Remote::held`] without waiting for the answer, so that several can be sent at once.
    ///
    /// # Errors
    /// [`RemoteError::Lost`].
    pub async fn ask_held(&mut self, into: &[u8], entry: &Entry) -> Result<(), RemoteError> {
        self.ask(&Request::Held { into: into.to_vec(), entry: entry.clone() }).await
    }

    /// Receives the answer to the oldest unanswered [`Remote::ask_held`].
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn receive_held(&mut self) -> Result<Vec<Range<u64>>, RemoteError> {
        match self.reply().await? {
            Reply::Held(ranges) => Ok(ranges.into_iter().map(|(from, to)| from..to).collect()),
            _ => Err(self.tear()),
        }
    }

    /// Requests the hashes of whole files without their bytes. Returns a result for each, in their order.
    ///
    /// # Errors
    /// [`RemoteError::Lost`].
    pub async fn check(
        &mut self,
        files: Vec<FileRef>,
    ) -> Result<Vec<Result<TransferHash, RemoteError>>, RemoteError> {
        let count = files.len();
        self.ask(&Request::Check(files)).await?;
        self.checks(count).await
    }

    /// Like [`Remote::check`], for parts of files.
    ///
    /// # Errors
    /// [`RemoteError::Lost`].
    pub async fn check_parts(
        &mut self,
        parts: Vec<ReadRequest>,
    ) -> Result<Vec<Result<TransferHash, RemoteError>>, RemoteError> {
        let count = parts.len();
        self.ask(&Request::CheckParts(parts)).await?;
        self.checks(count).await
    }

    async fn checks(
        &mut self,
        count: usize,
    ) -> Result<Vec<Result<TransferHash, RemoteError>>, RemoteError> {
        let replies = self.exchange(async |remote| {
            let mut replies = Vec::with_capacity(count);
            for _ in 0..count {
                replies.push(match remote.message().await? {
                    Reply::Sent(check) => Ok(check),
                    Reply::Failed(why) => Err(why),
                    _ => return Err(unexpected()),
                });
            }
            remote.answered().await?;
            Ok(replies)
        });
        let replies = replies.await?;
        let refused = |why| RemoteError::Refused { node: self.node.clone(), why };
        Ok(replies.into_iter().map(|reply| reply.map_err(refused)).collect())
    }

    fn tear(&mut self) -> RemoteError {
        self.is_broken = true;
        self.lost(unexpected())
    }
}

/// Whether an answer is for this many entries and refers only to reasons that it contains.
fn is_of(compared: &Comparison, entries: usize) -> bool {
    let reasons = compared.reasons.len();
    let is_sound = |found: &PathState| match found {
        PathState::Refused(why) => usize::from(*why) < reasons,
        _ => true,
    };
    compared.found.len() == entries && compared.found.iter().all(is_sound)
}
