//! Settings of the receiving side of casts.

use std::path::PathBuf;
use thalweg_units::ByteSize;
use thalweg_wire::mesh::MemberPattern;

/// Which casts a node accepts and relays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The directories in which casts are stored, and for which sources. The first that matches is used.
    pub inbox: Vec<Inbox>,
    /// Free space that must remain on an inbox's file system.
    pub keep_free: ByteSize,
    /// The maximum number of incomplete casts at a time.
    pub max_casts: usize,
    /// Whether this node forwards casts of which it is not a receiver.
    pub relay: bool,
    /// The maximum memory of all relayed casts together: rings, manifests and digests.
    pub relay_memory: ByteSize,
}

/// A directory in which casts are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inbox {
    /// Absolute path.
    pub path: PathBuf,
    /// Members whose casts are stored here.
    pub from: Vec<MemberPattern>,
    /// The maximum size of one cast; `None`: limited by free space only.
    pub max_bytes: Option<ByteSize>,
    /// Whether sources may set the owners of files. Has no effect unless the node runs as root.
    pub owners: bool,
    /// Whether their symbolic links may point anywhere, even outside the directory.
    pub links: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let keep_free = ByteSize::from_bytes(1_000_000_000);
        let relay_memory = ByteSize::from_bytes(256 << 20);
        Self { inbox: Vec::new(), keep_free, max_casts: 16, relay: false, relay_memory }
    }
}
