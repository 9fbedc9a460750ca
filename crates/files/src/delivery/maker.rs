//! Which member made a directory that is not finished: nobody else gives it a mode, and shows what is in it.
//!
//! The name is in an extended attribute, which outlives a crash. On a file system without them, and for a directory of
//! an older node, any member that may write there can finish it.

use crate::Reader;
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use std::os::fd::AsFd;
use thalweg_base::descriptors::path_of;

const MAKER: &str = "user.thalweg.maker";

/// Notes that this member made the directory.
pub(super) fn note(directory: impl AsFd, reader: &Reader) {
    let name = reader.member.name.as_str().as_bytes();
    _ = setxattr(path_of(&directory), MAKER, name, XattrFlags::empty());
}

/// Whether this member may give the directory its mode: it made it, or it is not known who did.
pub(super) fn may_finish(directory: impl AsFd, reader: &Reader) -> bool {
    let mut name = [0; 256];
    match getxattr(path_of(&directory), MAKER, &mut name[..]) {
        Ok(length) => name[..length] == *reader.member.name.as_str().as_bytes(),
        Err(_) => true,
    }
}

/// The directory is finished.
pub(super) fn forget(directory: impl AsFd) {
    _ = removexattr(path_of(&directory), MAKER);
}
