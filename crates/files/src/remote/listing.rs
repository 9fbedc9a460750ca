//! Lists files of another node.

use super::{Remote, RemoteError, invalid, unexpected};
use thalweg_wire::object::{
    DescribedEntry, Entry, Failure, Keep, Kind, ListRequest, Owners, Reply, Request,
};

/// The most memory for the listing of one node: some five million files with paths of 100 bytes. A longer listing is an
/// error that names the node, and the channel ends.
pub const MOST_LISTED: u64 = 1 << 30;

impl Remote {
    /// Lists paths; `part` gets the entries as they arrive, parents before their content. Returns the paths that could
    /// not be read, and why.
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

    /// Like [`Self::list`], with at most `most` bytes of memory.
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

    /// Like [`Self::list`], until `part` returns an error text. `part` also gets the memory that the entries take,
    /// bytes.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub async fn list_while(
        &mut self,
        request: ListRequest,
        mut part: impl FnMut(Vec<Entry>, u64) -> Result<(), String>,
    ) -> Result<Vec<(Vec<u8>, Failure)>, RemoteError> {
        let part = |listed, bytes| match listed {
            ListingPart::Entries(entries) => part(entries, bytes),
            ListingPart::Owners(_) => Ok(()),
        };
        self.listed(&Request::List(request), part).await
    }

    /// Lists paths with the metadata that `keep` requests; `part` is called as in [`Self::list_while`]. An older node
    /// ends the channel without an answer ([`RemoteError::Lost`]).
    ///
    /// # Errors
    /// As [`Self::list`].
    pub async fn describe_while(
        &mut self,
        request: ListRequest,
        keep: Keep,
        part: impl FnMut(ListingPart, u64) -> Result<(), String>,
    ) -> Result<Vec<(Vec<u8>, Failure)>, RemoteError> {
        self.listed(&Request::Describe(request, keep), part).await
    }

    async fn listed(
        &mut self,
        request: &Request,
        mut part: impl FnMut(ListingPart, u64) -> Result<(), String>,
    ) -> Result<Vec<(Vec<u8>, Failure)>, RemoteError> {
        self.ask(request).await?;
        let listed = self.exchange(async |remote| {
            let listed = loop {
                match remote.message().await? {
                    Reply::Entries(entries) => {
                        let bytes = entries.iter().map(memory).sum();
                        part(ListingPart::Entries(entries), bytes).map_err(invalid)?;
                    }
                    Reply::Described(entries) => {
                        let entries: Vec<_> =
                            entries.into_iter().map(|DescribedEntry(e)| e).collect();
                        let bytes = entries.iter().map(memory).sum();
                        part(ListingPart::Entries(entries), bytes).map_err(invalid)?;
                    }
                    Reply::Owners(owners) => {
                        let bytes = names(&owners.users) + names(&owners.groups);
                        part(ListingPart::Owners(owners), bytes).map_err(invalid)?;
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

/// A part of a listing.
#[derive(Clone, Debug)]
pub enum ListingPart {
    /// Entries of files, directories and other items.
    Entries(Vec<Entry>),
    /// Names of users and groups that own entries.
    Owners(Owners),
}

/// The bytes of memory that names take.
fn names(all: &[(u32, Vec<u8>)]) -> u64 {
    all.iter().map(|(_, name)| (size_of::<(u32, Vec<u8>)>() + name.len()) as u64).sum()
}

/// The bytes of memory that an entry takes.
fn memory(entry: &Entry) -> u64 {
    let target = match &entry.kind {
        Kind::Symlink { target } => target.len(),
        _ => 0,
    };
    let more = entry.more.as_ref().map_or(0, |more| more.memory());
    (size_of::<Entry>() + entry.path.as_bytes().len() + target + more) as u64
}

fn too_long(most: u64) -> String {
    format!("its listing takes more than {} MiB of memory: collect it in several calls", most >> 20)
}
