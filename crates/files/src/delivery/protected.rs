//! Items that are never removed: configured directories, and files that other requests are storing.

use crate::{Requester, root::Root, store::Inbox};
use rustix::fs::{Mode, OFlags, Stat, fstat, openat, stat};
use std::os::fd::AsFd;

/// The protected items of a node.
pub(crate) struct Protected<'a> {
    inbox: &'a Inbox,
    /// Device and inode of each configured directory, which identify it even if its path contains links.
    places: Vec<(u64, u64)>,
}

impl<'a> Protected<'a> {
    pub(crate) fn of(requester: &'a Requester) -> Self {
        let opened = requester.offers().paths().filter_map(|path| Root::open(path).ok());
        let found = opened.filter_map(|root| fstat(root.as_fd()).ok());
        let mut places: Vec<_> = found.map(|found| (found.st_dev, found.st_ino)).collect();
        places.extend(others(requester));
        Self { inbox: &requester.shared.inbox, places }
    }

    /// Whether an open directory is named in the settings.
    pub(super) fn is_configured(&self, found: &Stat) -> bool {
        self.places.contains(&(found.st_dev, found.st_ino))
    }

    /// Whether a file with this absolute path is being stored.
    pub(super) fn is_in_use(&self, path: &[u8]) -> bool {
        self.inbox.is_in_use(path)
    }

    /// Whether a file below this absolute path is being stored.
    pub(super) fn is_used_below(&self, path: &[u8]) -> bool {
        self.inbox.is_used_below(path)
    }
}

/// Whether a directory is an inbox of casts or a drop box's directory.
pub(super) fn is_of_other_service(requester: &Requester, found: &Stat) -> bool {
    others(requester).any(|other| other == (found.st_dev, found.st_ino))
}

/// Device and inode of each directory of other services.
fn others(requester: &Requester) -> impl Iterator<Item = (u64, u64)> {
    let found = requester.offers().protected().iter().filter_map(|path| stat(path).ok());
    found.map(|found| (found.st_dev, found.st_ino))
}

/// Whether a directory is, or is in, a directory of another service that is below the accepting directory; `depth` is
/// the number of levels between the two. A directory that an operator names in `[files] accept` itself is not protected
/// from the rights that are given there.
pub(crate) fn is_protected(requester: &Requester, directory: impl AsFd, depth: usize) -> bool {
    let others: Vec<(u64, u64)> = others(requester).collect();
    if others.is_empty() {
        return false;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(mut at) = openat(&directory, ".", flags, Mode::empty()) else { return true };
    for _ in 0..depth {
        let is_other = fstat(&at).map(|found| others.contains(&(found.st_dev, found.st_ino)));
        if is_other.unwrap_or(true) {
            return true;
        }
        // No link was followed below the accepting directory, so this is the directory above.
        match openat(&at, "..", flags, Mode::empty()) {
            Ok(above) => at = above,
            Err(_) => return true,
        }
    }
    false
}
