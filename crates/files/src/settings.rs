//! What a node offers and accepts.

use crate::quota::Limits;
use std::path::PathBuf;
use thalweg_units::ByteSize;
use thalweg_wire::mesh::MemberPattern;

/// The settings of a node's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Directories that members may read.
    pub offer: Vec<Place>,
    /// Directories that members may write new files into.
    pub accept: Vec<AcceptPlace>,
    /// Inboxes of casts and directories of drop boxes. Deliveries remove neither them nor anything in them.
    pub protected: Vec<PathBuf>,
    /// For data that this node holds on its way between other members. When it is full, further data
    /// is refused as such; entries go after a day, or 10 min after their owner has left.
    pub spool_bytes: ByteSize,
    /// Channels at a time, of which one member has a quarter at most. When all are taken, the one that
    /// has rested longest is closed; if none has, a request waits a minute and is then answered *busy*.
    pub max_channels: usize,
}

/// A directory, with all below it, and who may use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Absolute.
    pub path: PathBuf,
    /// Who may read, or write, there.
    pub members: Vec<MemberPattern>,
}

/// A directory that members may leave files in, with all below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptPlace {
    /// Absolute.
    pub path: PathBuf,
    /// Who may write there.
    pub members: Vec<MemberPattern>,
    /// Whether they may replace files that are there, and change modes of directories.
    pub replace: bool,
    /// Whether they may remove what is there.
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
