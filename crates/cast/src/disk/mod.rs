//! Access to an object's bytes on disk: in one file, or in the files of a directory.

mod complete;
mod files;
mod fingerprint;
mod open;
mod spans;
mod tree;

pub use complete::{complete, may_be_part};
pub use files::{ObjectFiles, ObjectLocation};
pub use fingerprint::fingerprint;
pub use open::open_directory;
pub use tree::{
    InboxPolicy, OwnerPolicy, count_ignored_owners, is_as_made, make, may_be, refused_links, seal,
    settle,
};
