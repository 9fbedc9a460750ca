//! Items that are never removed: configured directories, and files that other requests are storing.

use crate::{Reader, beneath::Root, store::Inbox};
use rustix::fs::{Stat, fstat};

/// The protected items of a node.
pub(crate) struct Protected<'a> {
    inbox: &'a Inbox,
    /// Device and inode of each configured directory, which identify it even if its path contains links.
    places: Vec<(u64, u64)>,
}

impl<'a> Protected<'a> {
    pub(crate) fn of(reader: &'a Reader) -> Self {
        let opened = reader.offers().paths().filter_map(|path| Root::open(path).ok());
        let found = opened.filter_map(|root| fstat(root.as_fd()).ok());
        let places = found.map(|found| (found.st_dev, found.st_ino)).collect();
        Self { inbox: &reader.shared.inbox, places }
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
