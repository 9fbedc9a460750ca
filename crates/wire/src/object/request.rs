//! Requests and replies, and their framing.

use super::{
    Comparison, Delivery, DeniedGrant, DescribedEntry, Entry, FailedEntries, Failure, FilePath,
    Grant, Holding, JobId, Links, MAX_WHY, Owners, RemovalReport, Rules, Snapshot, SpoolId,
    SurplusRemoval, Ticket, TransferHashes,
};
use crate::mesh::Name;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

/// The longest request, bytes: a list of 1,000 small files with long names, and reserve.
pub const MAX_REQUEST: usize = 1 << 20;

/// The longest reply, bytes: a part of a listing.
pub const MAX_REPLY: usize = 1 << 20;

/// The maximum number of bytes of one `Store`. The serving node holds them in memory until it has checked their hash.
pub const MAX_STORE: u64 = 4 << 20;

/// The BLAKE3 hash of transferred bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferHash(pub [u8; 32]);

/// A file as it was listed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileRef {
    /// The requested path or pattern, as in [`ListRequest::roots`].
    pub root: Vec<u8>,
    /// The path below the [`crate::object::base`] of `root`.
    pub path: FilePath,
    /// The identity of the content.
    pub snapshot: Snapshot,
}

/// A request for a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRequest {
    /// Absolute paths on the serving host. A final `/` requests the content of a directory, as with rsync. Each may be
    /// a pattern with `*`, `?`, `[…]` and `**`: [`crate::object::base`].
    pub roots: Vec<Vec<u8>>,
    /// Patterns of entries to leave out, with everything below them; matched as by `rsync --exclude`.
    pub exclude: Vec<Vec<u8>>,
}

/// A set of optional metadata that entries should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep(u32);

impl Keep {
    /// The holes of files.
    pub const HOLES: Self = Self(1);
    /// The names of owners and groups.
    pub const NAMES: Self = Self(2);
    /// Extended attributes, as far as the serving node may read them.
    pub const XATTRS: Self = Self(4);
    /// Access control lists.
    pub const ACLS: Self = Self(8);
    /// Whether the serving node has permission to read files.
    pub const READABLE: Self = Self(16);

    /// The kinds in either set.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The set if the condition holds; otherwise the empty set.
    pub const fn only_if(self, is_wanted: bool) -> Self {
        if is_wanted { self } else { Self(0) }
    }

    /// The kinds of `self` that are not in `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the set contains all kinds of `other`.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A request for bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadRequest {
    pub file: FileRef,
    /// The offset of the first byte.
    pub from: u64,
    /// The number of bytes; at least 1 except for empty files.
    pub bytes: u64,
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Lists files. Replies: `Entries` …, then `Listed`.
    List(ListRequest),
    /// Reads a part of a file. Replies: `Bytes` and the bytes, then `Sent`; or `Failed` before or instead of `Sent`.
    Read(ReadRequest),
    /// Reads whole small files one after the other. Replies: as `Read`, for each file.
    ReadAll(Vec<FileRef>),
    /// Reads parts of files one after the other. Replies: as `Read`, for each part.
    ReadParts(Vec<ReadRequest>),
    /// Requests tickets with which other members may read files that the requesting member may read. Reply: `Tickets`.
    Tickets(Vec<Grant>),
    /// Reads the parts that a ticket is for. Replies: `Parts`, then as `Read` for each part; or `Failed`.
    Redeem(Ticket),
    /// Asks what was sent for tickets that the requesting member got from this node. Reply: `Checks`.
    Sent(Vec<Ticket>),
    /// Makes the node fetch data from another node into its spool, over one connection. Reply: `Fetched`.
    Fetch {
        /// The id of the data in the spool.
        id: SpoolId,
        /// The node that has the data.
        from: Name,
        /// The tickets for the data, whose parts are sent in this order.
        tickets: Vec<Ticket>,
        /// The maximum number of bytes.
        bytes: u64,
        /// The member that gets a ticket for the data once it is in the spool.
        then: Option<Name>,
        /// A note that [`Self::Holdings`] returns to the requesting member; at most [`super::MAX_NOTE`] bytes.
        note: Vec<u8>,
    },
    /// Reads a whole entry of the spool. Replies: as `Redeem`.
    Spooled(SpoolId),
    /// Deletes entries of the spool; missing ones are not an error. Reply: `Dropped`.
    Drop(Vec<SpoolId>),
    /// Deletes all entries of a collection from the spool. Reply: `Dropped`.
    DropJob(JobId),
    /// Writes a part of a file: `bytes` follow the request, at most [`MAX_STORE`]. Reply: `Stored`, or `Failed`. Parts
    /// may be sent in any order; an empty file is one part of 0 bytes.
    Store {
        /// The absolute path of the directory on the serving host.
        into: Vec<u8>,
        /// The file below the directory.
        entry: Entry,
        /// The offset of the first byte.
        from: u64,
        /// The number of bytes that follow.
        bytes: u64,
        /// Their hash.
        check: TransferHash,
    },
    /// Requests the hashes of whole files without their bytes. Replies: `Sent` or `Failed`, for each file.
    Check(Vec<FileRef>),
    /// Asks which bytes of a file being stored the node has. Reply: `Held`.
    Held {
        /// As in `Store`.
        into: Vec<u8>,
        /// As in `Store`.
        entry: Entry,
    },
    /// Lists the complete entries of a collection in the spool, in the order of their numbers; their owner needs it
    /// after a crash. Reply: `Holdings`. The owner repeats the request with the last number until the reply is empty.
    Holdings {
        /// The collection.
        job: JobId,
        /// Lists only entries with greater numbers.
        after: Option<u64>,
    },
    /// Requests the hashes of parts of files without their bytes. Replies: `Sent` or `Failed`, for each part.
    CheckParts(Vec<ReadRequest>),
    /// As `List`, with the requested optional metadata. Replies: `Described` and `Owners` …, then `Listed`. A node of
    /// an earlier version ends the channel.
    Describe(ListRequest, Keep),
    /// Compares a delivery with the files at its paths; without hashes, only as far as possible without reading them.
    /// Reply: `Compared`. A node of an earlier version ends the channel; this also holds for the following requests.
    Compare(Delivery, TransferHashes),
    /// Creates directories, links and whole files. The files' `bytes`, at most [`MAX_STORE`], follow the request in the
    /// order of the files. Reply: `Delivered`, once everything created is on the disk, or `Failed`.
    Put {
        /// The entries to create.
        delivery: Delivery,
        /// The number of bytes that follow.
        bytes: u64,
        /// Their hash.
        check: TransferHash,
    },
    /// As `Store`, with all metadata of the entry.
    StorePart {
        /// As in `Store`.
        into: Vec<u8>,
        /// As in `Store`.
        entry: DescribedEntry,
        /// Whether an existing file with this name is replaced, and which metadata is kept.
        rules: Rules,
        /// The names of the users and groups whose ids are in the entry.
        owners: Owners,
        /// The offset of the first byte.
        from: u64,
        /// The number of bytes that follow.
        bytes: u64,
        /// Their hash.
        check: TransferHash,
    },
    /// Sets the modes and times of directories, the deepest first. Sent after everything else. Reply: `Dressed`.
    Dress(Delivery),
    /// Removes entries that are not to be kept. Reply: `Cleared`.
    Clear(SurplusRemoval),
    /// Creates hard links to files that were stored. Reply: `Linked`.
    Link(Links),
}

/// A reply of the serving node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// A part of a listing, directories before their content.
    Entries(Vec<Entry>),
    /// The end of a listing, with the paths that could not be read, and why.
    Listed(Vec<(Vec<u8>, Failure)>),
    /// This number of bytes follows.
    Bytes(u64),
    /// All bytes were sent, and the file had changed neither before nor afterwards; contains their hash.
    Sent(TransferHash),
    /// This number of parts follows.
    Parts(u32),
    /// The tickets, in the order of the grants.
    Tickets(Vec<Result<Ticket, DeniedGrant>>),
    /// The hashes of the parts sent for each ticket; `None`: the ticket was not redeemed, or not completely, or is not
    /// known (any more).
    Checks(Vec<Option<Vec<Option<TransferHash>>>>),
    /// The data is in the spool.
    Fetched {
        /// For each part, the hash of the bytes received, or why it failed.
        parts: Vec<Result<TransferHash, Failure>>,
        /// The time from the first request to the last byte, µs.
        micros: u64,
        /// The maximum number of bytes that the spool has held for this collection at the same time.
        most: u64,
        /// The ticket for the member named in the request.
        ticket: Option<Ticket>,
    },
    /// The entries are deleted.
    Dropped,
    /// The part is written. If it was the last missing part, the file is on the disk under its final name.
    Stored,
    /// The bytes on the disk as half-open ranges, ascending; the whole file if it has its final name.
    Held(Vec<(u64, u64)>),
    /// Some entries of a collection, in ascending order of their numbers; empty: there are no more.
    Holdings(Vec<Holding>),
    /// The request takes longer, and the reply follows. Sent every few seconds, any number of times, before any other
    /// reply, so that silence means a dead node.
    Wait,
    /// The request failed. After `Bytes`, the announced number of bytes is sent nevertheless, padded with zeros.
    Failed(Failure),
    /// A part of a listing, as `Entries`, with all metadata.
    Described(Vec<DescribedEntry>),
    /// The names of owners of entries of the listing, sent before or after the entries.
    Owners(Owners),
    /// The states of the paths of a delivery.
    Compared(Comparison),
    /// The delivery is created, except for these entries.
    Delivered(FailedEntries),
    /// Modes and times are set.
    Dressed {
        /// The entries that failed.
        undone: FailedEntries,
        /// Existing directories that keep a mode which gives access to more users.
        wider: FailedEntries,
    },
    /// The entries that were not to be kept are removed.
    Cleared(RemovalReport),
    /// Hard links were created.
    Linked {
        /// The number of links that existed already.
        present: u64,
        /// The links that failed.
        undone: FailedEntries,
    },
}

impl Reply {
    /// Truncates the texts of failures to [`MAX_WHY`] bytes: senders and receivers of replies keep and show no more of
    /// a peer's text.
    pub fn cut(self) -> Self {
        let cut = |why: Failure| why.cut(MAX_WHY);
        match self {
            Self::Failed(why) => Self::Failed(cut(why)),
            Self::Listed(unread) => {
                Self::Listed(unread.into_iter().map(|(path, why)| (path, cut(why))).collect())
            }
            Self::Tickets(tickets) => {
                let denied = |DeniedGrant { read, why }| DeniedGrant { read, why: cut(why) };
                Self::Tickets(tickets.into_iter().map(|ticket| ticket.map_err(denied)).collect())
            }
            Self::Fetched { parts, micros, most, ticket } => {
                let parts = parts.into_iter().map(|part| part.map_err(cut)).collect();
                Self::Fetched { parts, micros, most, ticket }
            }
            other => other,
        }
    }
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// The message is too long; contains its length and the maximum.
    #[error("a message of {0} bytes is longer than the {1} allowed")]
    TooLong(usize, usize),
    /// The message cannot be decoded, or bytes follow it.
    #[error("a message is not readable")]
    Invalid,
}

/// Encodes `length:u32 ‖ postcard`.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    // Encoding these types to a vector cannot fail.
    let body = postcard::to_stdvec(message).unwrap_or_default();
    let mut out = Vec::with_capacity(4 + body.len());
    out.extend((body.len() as u32).to_be_bytes());
    out.extend(body);
    out
}

/// The length of the body, from the first four bytes.
///
/// # Errors
///
/// [`MessageError::TooLong`].
pub fn length(head: [u8; 4], most: usize) -> Result<usize, MessageError> {
    let length = u32::from_be_bytes(head) as usize;
    if length > most { Err(MessageError::TooLong(length, most)) } else { Ok(length) }
}

/// Decodes a whole body.
///
/// # Errors
///
/// [`MessageError::Invalid`].
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, MessageError> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(MessageError::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes: Vec<u8>) {
            if let Ok(request) = decode::<Request>(&bytes) {
                prop_assert_eq!(decode::<Request>(&encode(&request)[4..]), Ok(request));
            }
            _ = decode::<Reply>(&bytes);
        }

        #[test]
        fn no_path_leaves_its_directory(bytes: Vec<u8>) {
            if let Ok(path) = FilePath::new(bytes) {
                let parts = path.as_bytes().split(|b| *b == b'/');
                prop_assert!(!path.as_bytes().starts_with(b"/"));
                prop_assert!(parts.clone().all(|part| part != b".."), "{path:?}");
            }
        }
    }

    #[test]
    fn unsafe_paths_are_refused() {
        for bad in ["/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a", "a/."] {
            assert_eq!(FilePath::new(bad.into()), Err(crate::object::PathError::Escapes), "{bad}");
        }
        assert!(FilePath::new(b"a/..b/c.".to_vec()).is_ok());
        let body = encode(&"../x".as_bytes().to_vec());
        assert_eq!(decode::<FilePath>(&body[4..]), Err(MessageError::Invalid));
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_by_its_length() {
        assert_eq!(
            length([0, 16, 0, 1], MAX_REQUEST),
            Err(MessageError::TooLong(1_048_577, MAX_REQUEST))
        );
        assert_eq!(length([0, 0, 0, 7], MAX_REQUEST), Ok(7));
    }
}
