//! Bytes to another node.

use super::{Remote, RemoteError, unexpected, within};
use std::ops::Range;
use thalweg_wire::object::{Check, Entry, FileRef, Reply, Request};
use tokio::io::AsyncWriteExt as _;

impl Remote {
    /// Writes bytes of a file, from one place on, below the directory `into`. Pieces of a file may
    /// come in any order and on several channels; it has its name once all are there.
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
        let check = Check(*blake3::hash(bytes).as_bytes());
        let (into, entry) = (into.to_vec(), entry.clone());
        let request = Request::Store { into, entry, from, bytes: bytes.len() as u64, check };
        self.ask(&request).await?;
        self.exchange(async |remote| {
            within(remote.channel.write_all(bytes)).await?;
            within(remote.channel.flush()).await
        })
        .await?;
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
        let request = Request::Held { into: into.to_vec(), entry: entry.clone() };
        match self.request(&request).await? {
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
