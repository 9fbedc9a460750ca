//! What is there.

use super::{Remote, RemoteError, invalid, unexpected};
use thalweg_wire::object::{Entry, Failure, Kind, ListRequest, Reply, Request};

/// Memory for all that one node lists: some five million files with paths of 100 bytes. A node that
/// lists more is an error that names it; the channel ends.
pub const MOST_LISTED: u64 = 1 << 30;

impl Remote {
    /// Asks what is there; `part` takes the entries as they come, parents before what is in
    /// them. Gives the paths that could not be read, and why.
    ///
    /// # Errors
    /// [`RemoteError::Refused`], [`RemoteError::Lost`]; also if the entries take more memory than
    /// `MOST_LISTED`.
    pub async fn list(
        &mut self,
        request: ListRequest,
        part: impl FnMut(Vec<Entry>),
    ) -> Result<Vec<(Vec<u8>, Failure)>, RemoteError> {
        self.list_within(request, MOST_LISTED, part).await
    }

    /// The same for at most so many bytes of memory.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub async fn list_within(
        &mut self,
        request: ListRequest,
        most: u64,
        mut part: impl FnMut(Vec<Entry>),
    ) -> Result<Vec<(Vec<u8>, Failure)>, RemoteError> {
        let mut left = most;
        let part = |entries, bytes| {
            left = u64::checked_sub(left, bytes).ok_or_else(|| too_long(most))?;
            part(entries);
            Ok(())
        };
        self.list_while(request, part).await
    }

    /// The same as long as `part` takes entries, of so many bytes of memory, and does not say why it
    /// takes no more.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub async fn list_while(
        &mut self,
        request: ListRequest,
        mut part: impl FnMut(Vec<Entry>, u64) -> Result<(), String>,
    ) -> Result<Vec<(Vec<u8>, Failure)>, RemoteError> {
        self.ask(&Request::List(request)).await?;
        let listed = self.exchange(async |remote| {
            let listed = loop {
                match remote.message().await? {
                    Reply::Entries(entries) => {
                        let bytes = entries.iter().map(memory).sum();
                        part(entries, bytes).map_err(invalid)?;
                    }
                    Reply::Listed(unread) => break Ok(unread),
                    Reply::Failed(why) => break Err(why),
                    _ => return Err(unexpected()),
                }
            };
            remote.answered().await?;
            Ok(listed)
        });
        let listed = listed.await?;
        listed.map_err(|why| RemoteError::Refused { node: self.node.clone(), why })
    }
}

/// Bytes that an entry takes here.
fn memory(entry: &Entry) -> u64 {
    let target = match &entry.kind {
        Kind::Symlink { target } => target.len(),
        _ => 0,
    };
    (size_of::<Entry>() + entry.path.as_bytes().len() + target) as u64
}

fn too_long(most: u64) -> String {
    format!(
        "what it lists takes more than {} MiB of memory: collect it in several calls",
        most >> 20
    )
}
