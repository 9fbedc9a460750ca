//! What a node takes of casts.

use std::path::PathBuf;
use thalweg_units::ByteSize;
use thalweg_wire::mesh::MemberPattern;

/// The settings of a node's receiving end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where casts land, and whose; the first that fits is taken.
    pub inbox: Vec<Inbox>,
    /// What stays free on an inbox's file system.
    pub keep_free: ByteSize,
    /// Casts that are not complete, at a time.
    pub max_casts: usize,
    /// Whether this node hands on casts that are not for it.
    pub relay: bool,
    /// The most memory that all relayed casts take: rings, manifests and digests.
    pub relay_memory: ByteSize,
}

/// A directory where casts land.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inbox {
    /// Absolute.
    pub path: PathBuf,
    /// Members whose casts land there.
    pub from: Vec<MemberPattern>,
    /// The most of one cast; `None`: as much as the disk takes.
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
