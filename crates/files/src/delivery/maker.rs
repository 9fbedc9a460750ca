//! Records which member made an unfinished directory. Only that member may set its mode and so reveal its content.
//!
//! The member's name is in an extended attribute, which survives a crash. Without extended attributes, and for
//! directories made by an older version, any member that may write there can finish the directory.

use crate::Reader;
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use std::os::fd::AsFd;
use thalweg_base::descriptors::path_of;

const MAKER: &str = "user.thalweg.maker";

/// Records that this member made the directory.
pub(super) fn note(directory: impl AsFd, reader: &Reader) {
    let name = reader.member.name.as_str().as_bytes();
    _ = setxattr(path_of(&directory), MAKER, name, XattrFlags::empty());
}

/// Whether this member may set the directory's mode: it made the directory, or the maker is unknown.
pub(super) fn may_finish(directory: impl AsFd, reader: &Reader) -> bool {
    let mut name = [0; 256];
    match getxattr(path_of(&directory), MAKER, &mut name[..]) {
        Ok(length) => name[..length] == *reader.member.name.as_str().as_bytes(),
        Err(_) => true,
    }
}

/// Removes the record, because the directory is finished.
pub(super) fn forget(directory: impl AsFd) {
    _ = removexattr(path_of(&directory), MAKER);
}
