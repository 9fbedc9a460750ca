//! Records which member made an unfinished directory. Only that member may set its mode and so reveal its content.
//!
//! The member's name is in an extended attribute, which survives a crash. Without extended attributes, and for
//! directories made by an older version, any member that may write there can finish the directory.

use crate::Requester;
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use std::os::fd::AsFd;
use thalweg_base::descriptors::path_of;

const MAKER: &str = "user.thalweg.maker";

/// Records that this member made the directory.
pub(super) fn record(directory: impl AsFd, requester: &Requester) {
    let name = requester.member.name.as_str().as_bytes();
    _ = setxattr(path_of(&directory), MAKER, name, XattrFlags::empty());
}

/// Whether this member may set the directory's mode: it made the directory, or the maker is unknown.
pub(super) fn may_finish(directory: impl AsFd, requester: &Requester) -> bool {
    let mut name = [0; 256];
    match getxattr(path_of(&directory), MAKER, &mut name[..]) {
        Ok(length) => name[..length] == *requester.member.name.as_str().as_bytes(),
        Err(_) => true,
    }
}

/// Removes the record, because the directory is finished.
pub(super) fn remove(directory: impl AsFd) {
    _ = removexattr(path_of(&directory), MAKER);
}
