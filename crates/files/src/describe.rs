//! What an entry tells beside what all do: attributes, lists of rights, holes; and the names of owners.

use super::beneath::Root;
use rustix::{
    fs::{FileType, Stat},
    io::Errno,
};
use std::{collections::BTreeSet, mem};
use thalweg_part::{holes, names, xattr};
use thalweg_wire::object::{Entry, Keep, Owners};

/// Owners whose names are told, of each sort; of more the numbers.
const MOST_OWNERS: usize = 10_000;

/// Tells of entries as much as is asked for.
#[derive(Debug)]
pub(super) struct Describer {
    keep: Keep,
    users: BTreeSet<u32>,
    groups: BTreeSet<u32>,
    new: Owners,
}

impl Describer {
    pub fn new(keep: Keep) -> Self {
        let (users, groups, new) = (BTreeSet::new(), BTreeSet::new(), Owners::default());
        Self { keep, users, groups, new }
    }

    /// Adds it to the entry of what is at `path` below `root`.
    pub fn describe(
        &mut self,
        root: &Root,
        path: &[u8],
        found: &Stat,
        entry: &mut Entry,
    ) -> Result<(), Errno> {
        if self.keep.has(Keep::NAMES) {
            self.name(found.st_uid, found.st_gid);
        }
        let kind = FileType::from_raw_mode(found.st_mode);
        let is_file = kind == FileType::RegularFile;
        if is_file && self.keep.has(Keep::HOLES) && holes::is_sparse(found) {
            // One that may not be read is found when it is read.
            let opened = root.file(path).ok();
            let holes = opened.map(|(file, _)| holes::of(file, found.st_size.max(0) as u64));
            entry.more.get_or_insert_default().holes = Some(holes.unwrap_or_default());
        }
        let is_asked = self.keep.has(Keep::XATTRS) || self.keep.has(Keep::ACLS);
        if is_asked && (is_file || kind == FileType::Directory) {
            let xattrs = xattr::read(root.itself(path)?, self.keep)?;
            if !xattrs.is_empty() {
                entry.more.get_or_insert_default().xattrs = xattrs;
            }
        }
        Ok(())
    }

    fn name(&mut self, user: u32, group: u32) {
        if self.users.len() < MOST_OWNERS && self.users.insert(user) {
            self.new.users.extend(names::user(user).map(|name| (user, name)));
        }
        if self.groups.len() < MOST_OWNERS && self.groups.insert(group) {
            self.new.groups.extend(names::group(group).map(|name| (group, name)));
        }
    }

    /// Names that were not told before.
    pub fn new_owners(&mut self) -> Option<Owners> {
        let new = mem::take(&mut self.new);
        (new != Owners::default()).then_some(new)
    }
}
