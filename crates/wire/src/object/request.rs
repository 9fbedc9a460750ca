//! Requests and replies, and their framing.

use super::{
    Checks, Compared, Delivery, Denied, Described, Entry, Failure, FilePath, Grant, Holding, JobId,
    Links, MAX_WHY, Owners, Removed, Rules, Snapshot, SpoolId, Surplus, Ticket, Undone,
};
use crate::mesh::Name;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

/// The longest request: a list of 1,000 small files with long names, and room.
pub const MAX_REQUEST: usize = 1 << 20;

/// The longest reply: a part of a listing.
pub const MAX_REPLY: usize = 1 << 20;

/// The most bytes of one `Store`: who serves holds them in memory until their hash is checked.
pub const MAX_STORE: u64 = 4 << 20;

/// The BLAKE3 hash of bytes that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check(pub [u8; 32]);

/// A file as it was listed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileRef {
    /// The path or pattern asked for, as in [`ListRequest::roots`].
    pub root: Vec<u8>,
    /// Below its [`crate::object::base`].
    pub path: FilePath,
    /// The content that is meant.
    pub snapshot: Snapshot,
}

/// Asks what is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRequest {
    /// Absolute paths on the serving host. A last `/` asks for what a directory holds, as rsync's
    /// does. Each may be a pattern with `*`, `?`, `[…]` and `**`: [`crate::object::base`].
    pub roots: Vec<Vec<u8>>,
    /// Patterns that are left out, with what is below them; matched as `rsync --exclude` does.
    pub exclude: Vec<Vec<u8>>,
}

/// What entries are to tell beside what all do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep(u32);

impl Keep {
    /// Holes of files.
    pub const HOLES: Self = Self(1);
    /// Names of owners and groups.
    pub const NAMES: Self = Self(2);
    /// Extended attributes, as far as the serving node may read them.
    pub const XATTRS: Self = Self(4);
    /// Access control lists.
    pub const ACLS: Self = Self(8);
    /// Whether the serving node may read files.
    pub const READABLE: Self = Self(16);

    /// Both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Only if so.
    pub const fn only_if(self, is_wanted: bool) -> Self {
        if is_wanted { self } else { Self(0) }
    }

    /// All but the other.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of the other is in it.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Asks for bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadRequest {
    /// Which.
    pub file: FileRef,
    /// From which byte.
    pub from: u64,
    /// How many; at least 1 but for empty files.
    pub bytes: u64,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Replies: `Entries` …, then `Listed`.
    List(ListRequest),
    /// Replies: `Bytes` and the bytes, then `Sent`; or `Failed` before or instead of `Sent`.
    Read(ReadRequest),
    /// Whole small files one behind the other: for each what `Read` has.
    ReadAll(Vec<FileRef>),
    /// Parts of files one behind the other: for each what `Read` has.
    ReadParts(Vec<ReadRequest>),
    /// Tickets with which other members may read what the asking one may. Reply: `Tickets`.
    Tickets(Vec<Grant>),
    /// Reads what a ticket is for. Replies: `Parts`, then for each part what `Read` has; or
    /// `Failed`.
    Redeem(Ticket),
    /// What was sent for tickets that the asking member has got from here. Reply: `Checks`.
    Sent(Vec<Ticket>),
    /// Fetches from another node into the spool, all of it over one connection. Reply: `Fetched`.
    Fetch {
        /// What it is called here from now on.
        id: SpoolId,
        /// Who has it.
        from: Name,
        /// Its tickets; their parts come one behind the other.
        tickets: Vec<Ticket>,
        /// How many bytes that is at most.
        bytes: u64,
        /// Who is to have a ticket for it, once it is here.
        then: Option<Name>,
        /// What the asking member wants to be told when it asks for its [`Self::Holdings`]; at most
        /// [`super::MAX_NOTE`] bytes.
        note: Vec<u8>,
    },
    /// Reads what was fetched, all of it. Replies as `Redeem`.
    Spooled(SpoolId),
    /// Forgets what was fetched; nothing there is no error. Reply: `Dropped`.
    Drop(Vec<SpoolId>),
    /// Forgets all that was fetched for a collection. Reply: `Dropped`.
    DropJob(JobId),
    /// Writes a part of a file: `bytes` follow the request, at most [`MAX_STORE`]. Reply: `Stored`, or
    /// `Failed`. Parts may come in any order; an empty file is one part of none.
    Store {
        /// The directory, absolute on the serving host, and the file below it.
        into: Vec<u8>,
        /// The file below it.
        entry: Entry,
        /// From which byte on.
        from: u64,
        /// How many bytes follow.
        bytes: u64,
        /// Their hash.
        check: Check,
    },
    /// The hash of whole files, without their bytes: for each `Sent`, or `Failed`.
    Check(Vec<FileRef>),
    /// Which bytes of a file that is being stored are here. Reply: `Held`.
    Held {
        /// As in `Store`.
        into: Vec<u8>,
        /// As in `Store`.
        entry: Entry,
    },
    /// Which whole entries of a collection are here, in the order of their numbers: after a crash their owner knows
    /// them no more. Reply: `Holdings`; it is asked again with the last number until that is empty.
    Holdings {
        /// The collection.
        job: JobId,
        /// Only those of larger numbers.
        after: Option<u64>,
    },
    /// The hash of parts of files, without their bytes: for each `Sent`, or `Failed`.
    CheckParts(Vec<ReadRequest>),
    /// As `List`, with all that entries have and is to be told. Replies: `Described` and `Owners` …, then `Listed`.
    /// A node that is older ends the channel.
    Describe(ListRequest, Keep),
    /// What lies at the paths of a delivery; without hashes only what can be seen without reading. Reply: `Compared`.
    /// A node that is older ends the channel, also for those that follow.
    Compare(Delivery, Checks),
    /// Makes directories, links and whole files: the files' `bytes`, at most [`MAX_STORE`], follow the request one behind
    /// the other. Reply: `Delivered`, once all that was made is on the disk, or `Failed`.
    Put {
        /// What.
        delivery: Delivery,
        /// How many bytes follow.
        bytes: u64,
        /// Their hash.
        check: Check,
    },
    /// As `Store`, with all that the entry has.
    StorePart {
        /// As in `Store`.
        into: Vec<u8>,
        /// As in `Store`.
        entry: Described,
        /// Whether another file of its name is replaced, and what is kept of it.
        rules: Rules,
        /// Names of those whom the entry numbers.
        owners: Owners,
        /// From which byte on.
        from: u64,
        /// How many bytes follow.
        bytes: u64,
        /// Their hash.
        check: Check,
    },
    /// Gives directories their modes and times, the last thing of all: the deepest come first. Reply: `Dressed`.
    Dress(Delivery),
    /// Removes what is not to be kept. Reply: `Cleared`.
    Clear(Surplus),
    /// Gives files that are there further names. Reply: `Linked`.
    Link(Links),
}

/// What the serving node says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// A part of a listing, parents before what is in them.
    Entries(Vec<Entry>),
    /// The end of a listing; paths that could not be read, and why.
    Listed(Vec<(Vec<u8>, Failure)>),
    /// So many bytes follow.
    Bytes(u64),
    /// All of them were sent; the file had not changed before nor after.
    Sent(Check),
    /// So many parts follow.
    Parts(u32),
    /// Tickets, in the order of their grants.
    Tickets(Vec<Result<Ticket, Denied>>),
    /// What was sent for each ticket, part by part; `None`: it was not redeemed, or not to the
    /// end, or is not known (any more).
    Checks(Vec<Option<Vec<Option<Check>>>>),
    /// It is in the spool.
    Fetched {
        /// For each part the hash of what came, or what was said instead of it.
        parts: Vec<Result<Check, Failure>>,
        /// From the first request for it to its last byte, µs.
        micros: u64,
        /// The most bytes that were held here for this collection at a time so far.
        most: u64,
        /// For who was to have one.
        ticket: Option<Ticket>,
    },
    /// It is gone.
    Dropped,
    /// It is written; as it was the last part missing, all is on the disk, under its name.
    Stored,
    /// These bytes are on the disk, ascending, each from the first up to before the second; all of
    /// them if the file has its name.
    Held(Vec<(u64, u64)>),
    /// Some entries of a collection, the lowest numbers first; none: there are no more.
    Holdings(Vec<Holding>),
    /// Not done yet: the reply follows. Said every some seconds, so that silence means a dead node;
    /// instead of any other reply, any number of times.
    Wait,
    /// Not done. After `Bytes`: the bytes that were promised came all the same, filled up with zeros.
    Failed(Failure),
    /// A part of a listing, as `Entries`.
    Described(Vec<Described>),
    /// Names of the owners of entries that were or are to be told.
    Owners(Owners),
    /// What lies at the paths of a delivery.
    Compared(Compared),
    /// A delivery is made, but for these.
    Delivered(Undone),
    /// Modes and times are given.
    Dressed {
        /// But for these.
        undone: Undone,
        /// Directories that were there before and keep a mode that shows them to more users.
        wider: Undone,
    },
    /// What was not to be kept is gone.
    Cleared(Removed),
    /// Further names are given.
    Linked {
        /// So many were there already.
        present: u64,
        /// But for these.
        undone: Undone,
    },
}

impl Reply {
    /// With no failure's text longer than [`MAX_WHY`]: whoever sends or receives a reply keeps and
    /// shows no more of another's words.
    pub fn cut(self) -> Self {
        let cut = |why: Failure| why.cut(MAX_WHY);
        match self {
            Self::Failed(why) => Self::Failed(cut(why)),
            Self::Listed(unread) => {
                Self::Listed(unread.into_iter().map(|(path, why)| (path, cut(why))).collect())
            }
            Self::Tickets(tickets) => {
                let denied = |Denied { read, why }| Denied { read, why: cut(why) };
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

/// The bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Longer than allowed.
    #[error("a message of {0} bytes is longer than the {1} allowed")]
    TooLong(usize, usize),
    /// Not readable, or there is more behind it.
    #[error("a message is not readable")]
    Invalid,
}

/// `length:u32 ‖ postcard`.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    // Writing to a vector fails for no value of these types.
    let body = postcard::to_stdvec(message).unwrap_or_default();
    let mut out = Vec::with_capacity(4 + body.len());
    out.extend((body.len() as u32).to_be_bytes());
    out.extend(body);
    out
}

/// How long the body is, from the first four bytes.
///
/// # Errors
///
/// [`MessageError::TooLong`].
pub fn length(head: [u8; 4], most: usize) -> Result<usize, MessageError> {
    let length = u32::from_be_bytes(head) as usize;
    if length > most { Err(MessageError::TooLong(length, most)) } else { Ok(length) }
}

/// Reads a body, all of it.
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
    fn paths_that_leave_are_refused() {
        for bad in ["/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a", "a/."] {
            assert_eq!(FilePath::new(bad.into()), Err(crate::object::PathError::Escapes), "{bad}");
        }
        assert!(FilePath::new(b"a/..b/c.".to_vec()).is_ok());
        let body = encode(&"../x".as_bytes().to_vec());
        assert_eq!(decode::<FilePath>(&body[4..]), Err(MessageError::Invalid));
    }

    #[test]
    fn what_is_too_long_is_seen_before_it_is_read() {
        assert_eq!(
            length([0, 16, 0, 1], MAX_REQUEST),
            Err(MessageError::TooLong(1_048_577, MAX_REQUEST))
        );
        assert_eq!(length([0, 0, 0, 7], MAX_REQUEST), Ok(7));
    }
}
