//! Bytes to another node.

use super::{Remote, RemoteError, unexpected};
use bytes::Bytes;
use std::ops::Range;
use thalweg_wire::object::{
    Check, Checks, Compared, Delivery, Described, Entry, FileRef, Found, Links, Owners,
    ReadRequest, Removed, Reply, Request, Rules, Surplus, Undone,
};

/// Comparisons, and deliveries, that may be without an answer: both ends' sockets hold their answers.
pub const AHEAD: usize = 3;

impl Remote {
    /// Writes a part of a file below the directory `into`, at most [`MAX_STORE`](thalweg_wire::object::MAX_STORE) bytes at once.
    ///
    /// Parts may come in any order and on several channels; a crash at either end costs at
    /// most the last seconds' ([`Remote::held`] tells). The file has its name, and is on the
    /// disk, once the last missing part is stored.
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
        self.stored().await
    }

    /// Sends a part without waiting until it is stored: the next one can follow at once.
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
        let check = Check(*blake3::hash(&bytes).as_bytes());
        let (into, entry) = (into.to_vec(), entry.clone());
        let request = Request::Store { into, entry, from, bytes: bytes.len() as u64, check };
        self.ask_with(&request, bytes).await
    }

    /// The same with all fields of the entry, the rules and the names of owners.
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
        let check = Check(*blake3::hash(&bytes).as_bytes());
        let (into, entry) = (into.to_vec(), Described(entry.clone()));
        let count = bytes.len() as u64;
        let request = Request::StorePart { into, entry, rules, owners, from, bytes: count, check };
        self.ask_with(&request, bytes).await
    }

    /// Asks what lies at the paths of a delivery, [`AHEAD`] times at most before an answer is taken.
    ///
    /// # Errors
    /// [`RemoteError::Lost`].
    pub async fn ask_compare(
        &mut self,
        delivery: Delivery,
        checks: Vec<Check>,
    ) -> Result<(), RemoteError> {
        self.ask(&Request::Compare(delivery, Checks(checks))).await
    }

    /// The answer to the oldest of these questions, which was about so many entries.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn compared(&mut self, entries: usize) -> Result<Compared, RemoteError> {
        match self.reply().await? {
            Reply::Compared(compared) if is_of(&compared, entries) => Ok(compared),
            _ => Err(self.tear()),
        }
    }

    /// Sends a delivery with the bytes of its files, at most
    /// [`MAX_STORE`](thalweg_wire::object::MAX_STORE), [`AHEAD`] times at most before an answer is taken.
    ///
    /// # Errors
    /// [`RemoteError::Lost`].
    pub async fn ask_put(&mut self, delivery: Delivery, bytes: Bytes) -> Result<(), RemoteError> {
        let check = Check(*blake3::hash(&bytes).as_bytes());
        let request = Request::Put { delivery, bytes: bytes.len() as u64, check };
        self.ask_with(&request, bytes).await
    }

    /// What was not done of the oldest delivery.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn delivered(&mut self) -> Result<Undone, RemoteError> {
        match self.reply().await? {
            Reply::Delivered(undone) => Ok(undone),
            _ => Err(self.tear()),
        }
    }

    /// Gives directories their modes and times; what was not done, and which keep a wider mode.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn dress(&mut self, delivery: Delivery) -> Result<(Undone, Undone), RemoteError> {
        match self.request(&Request::Dress(delivery)).await? {
            Reply::Dressed { undone, wider } => Ok((undone, wider)),
            _ => Err(self.tear()),
        }
    }

    /// Creates hard links, or only checks which would fail. Returns how many exist already, and which failed.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn link(&mut self, links: Links) -> Result<(u64, Undone), RemoteError> {
        match self.request(&Request::Link(links)).await? {
            Reply::Linked { present, undone } => Ok((present, undone)),
            _ => Err(self.tear()),
        }
    }

    /// Removes names of a directory, or tells what would go.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn clear(&mut self, surplus: Surplus) -> Result<Removed, RemoteError> {
        match self.request(&Request::Clear(surplus)).await? {
            Reply::Cleared(removed) => Ok(removed),
            _ => Err(self.tear()),
        }
    }

    /// What became of the oldest part that was sent.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn stored(&mut self) -> Result<(), RemoteError> {
        match self.reply().await? {
            Reply::Stored => Ok(()),
            _ => Err(self.tear()),
        }
    }

    /// Which bytes of a file that is being stored are on the other node's disk.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn held(
        &mut self,
        into: &[u8],
        entry: &Entry,
    ) -> Result<Vec<Range<u64>>, RemoteError> {
        self.ask_held(into, entry).await?;
        self.holds().await
    }

    /// Asks the same without waiting for the answer: more can be asked at once.
    ///
    /// # Errors
    /// [`RemoteError::Lost`].
    pub async fn ask_held(&mut self, into: &[u8], entry: &Entry) -> Result<(), RemoteError> {
        self.ask(&Request::Held { into: into.to_vec(), entry: entry.clone() }).await
    }

    /// The answer to the oldest of these questions.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn holds(&mut self) -> Result<Vec<Range<u64>>, RemoteError> {
        match self.reply().await? {
            Reply::Held(ranges) => Ok(ranges.into_iter().map(|(from, to)| from..to).collect()),
            _ => Err(self.tear()),
        }
    }

    /// The hashes of whole files, without their bytes; a result for each, in their order.
    ///
    /// # Errors
    /// [`RemoteError::Lost`].
    pub async fn check(
        &mut self,
        files: Vec<FileRef>,
    ) -> Result<Vec<Result<Check, RemoteError>>, RemoteError> {
        let count = files.len();
        self.ask(&Request::Check(files)).await?;
        self.checks(count).await
    }

    /// The same of parts of files.
    ///
    /// # Errors
    /// [`RemoteError::Lost`].
    pub async fn check_parts(
        &mut self,
        parts: Vec<ReadRequest>,
    ) -> Result<Vec<Result<Check, RemoteError>>, RemoteError> {
        let count = parts.len();
        self.ask(&Request::CheckParts(parts)).await?;
        self.checks(count).await
    }

    async fn checks(
        &mut self,
        count: usize,
    ) -> Result<Vec<Result<Check, RemoteError>>, RemoteError> {
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
        self.torn = true;
        self.lost(unexpected())
    }
}

/// Whether it speaks of so many entries, and of no reason that is not in it.
fn is_of(compared: &Compared, entries: usize) -> bool {
    let reasons = compared.reasons.len();
    let is_sound = |found: &Found| match found {
        Found::Refused(why) => usize::from(*why) < reasons,
        _ => true,
    };
    compared.found.len() == entries && compared.found.iter().all(is_sound)
}
