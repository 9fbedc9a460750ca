//! The settings of the file service: the directories that a node offers and accepts files in.

use crate::quota::Limits;
use std::path::PathBuf;
use thalweg_units::ByteSize;
use thalweg_wire::mesh::MemberPattern;

/// The settings of a node's file service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Directories that members may read.
    pub offer: Vec<OfferedDirectory>,
    /// Directories that members may write new files into.
    pub accept: Vec<AcceptingDirectory>,
    /// Inboxes of casts and directories of drop boxes. Deliveries remove neither these directories nor anything in
    /// them.
    pub protected: Vec<PathBuf>,
    /// The most bytes of data that this node relays between other members. When the spool is full, further data is
    /// refused with [`Failure::Full`](thalweg_wire::object::Failure::Full). Entries are removed after a day, or 10 min
    /// after their owner has left.
    pub spool_bytes: ByteSize,
    /// The most channels that are served at a time; one member has at most a quarter of them. When all slots are taken,
    /// the channel that has been idle longest is closed. If none is idle, a request waits up to a minute and is then
    /// answered *busy*.
    pub max_channels: usize,
}

/// A directory with everything below it, and the members that may use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferedDirectory {
    /// Absolute.
    pub path: PathBuf,
    /// The members that may read in it, or write to it.
    pub members: Vec<MemberPattern>,
}

/// A directory with everything below it that members may store files in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptingDirectory {
    /// Absolute.
    pub path: PathBuf,
    /// The members that may write to it.
    pub members: Vec<MemberPattern>,
    /// Whether they may replace existing files, and change modes of directories.
    pub replace: bool,
    /// Whether they may remove existing files.
    pub remove: bool,
    /// Whether they may set the owners of files. Has no effect unless the node runs as root.
    pub owners: bool,
    /// Whether their symbolic links may point anywhere, even outside the directory.
    pub links: bool,
    /// The bounds on what members may store there.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            offer: Vec::new(),
            accept: Vec::new(),
            protected: Vec::new(),
            spool_bytes: ByteSize::from_bytes(10_000_000_000),
            // Each may hold two buffers of 256 KiB: 64 MiB in all.
            max_channels: 128,
        }
    }
}
