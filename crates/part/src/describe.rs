//! What is told of a file beside what every entry has: attributes, lists of rights, holes; and the names of owners.

use crate::{
    acl::{self, Who},
    holes, names, xattr,
};
use rustix::{
    fs::{Access, AtFlags, CWD, FileType, Stat, accessat},
    io::Errno,
};
use std::{
    collections::BTreeSet,
    fs::Metadata,
    mem,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::MetadataExt as _,
    },
};
use thalweg_wire::object::{Keep, More, Owners};

/// Owners whose names are told, of each sort; of more the numbers.
const MOST_OWNERS: usize = 10_000;

/// What stat(2) says of a file, as far as it is asked here.
#[derive(Clone, Copy, Debug)]
pub struct Looked {
    kind: FileType,
    user: u32,
    group: u32,
    size: u64,
    is_sparse: bool,
}

impl From<&Stat> for Looked {
    fn from(found: &Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(found.st_mode),
            user: found.st_uid,
            group: found.st_gid,
            size: u64::try_from(found.st_size).unwrap_or(0),
            is_sparse: holes::is_sparse(found),
        }
    }
}

impl From<&Metadata> for Looked {
    fn from(found: &Metadata) -> Self {
        Self {
            kind: FileType::from_raw_mode(found.mode()),
            user: found.uid(),
            group: found.gid(),
            size: found.size(),
            is_sparse: holes::has_fewer_blocks(found.size(), found.blocks()),
        }
    }
}

/// Tells of files as much as is asked for.
#[derive(Debug)]
pub struct Describer {
    keep: Keep,
    users: BTreeSet<u32>,
    groups: BTreeSet<u32>,
    new: Owners,
}

impl Describer {
    /// Of so much.
    pub fn new(keep: Keep) -> Self {
        let (users, groups, new) = (BTreeSet::new(), BTreeSet::new(), Owners::default());
        Self { keep, users, groups, new }
    }

    /// What few files have; `read` opens it for reading, `itself` by its path alone.
    ///
    /// # Errors
    /// Of its attributes.
    pub fn describe(
        &mut self,
        found: Looked,
        read: impl FnOnce() -> Option<OwnedFd>,
        itself: impl Fn() -> Result<OwnedFd, Errno>,
    ) -> Result<Option<Box<More>>, Errno> {
        if self.keep.has(Keep::NAMES) {
            self.user(found.user);
            self.group(found.group);
        }
        let is_file = found.kind == FileType::RegularFile;
        let mut more = More::default();
        if is_file && self.keep.has(Keep::HOLES) && found.is_sparse {
            // One that may not be read is found when it is read.
            more.holes = Some(read().map(|file| holes::of(file, found.size)).unwrap_or_default());
        }
        if is_file && self.keep.has(Keep::READABLE) {
            more.is_unreadable = !may_read(itself()?);
        }
        let is_asked = self.keep.has(Keep::XATTRS) || self.keep.has(Keep::ACLS);
        if is_asked && (is_file || found.kind == FileType::Directory) {
            more.xattrs = xattr::read(itself()?, self.keep)?;
            self.name_listed(&more);
        }
        Ok((more != More::default()).then(|| Box::new(more)))
    }

    /// The names of those whom its lists are about.
    fn name_listed(&mut self, more: &More) {
        if !self.keep.has(Keep::NAMES) {
            return;
        }
        for list in more.xattrs.iter().filter(|xattr| xattr::is_list(&xattr.name)) {
            for who in acl::named(&list.value) {
                match who {
                    Who::User(number) => self.user(number),
                    Who::Group(number) => self.group(number),
                }
            }
        }
    }

    fn user(&mut self, number: u32) {
        if self.users.len() < MOST_OWNERS && self.users.insert(number) {
            self.new.users.extend(names::user(number).map(|name| (number, name)));
        }
    }

    fn group(&mut self, number: u32) {
        if self.groups.len() < MOST_OWNERS && self.groups.insert(number) {
            self.new.groups.extend(names::group(number).map(|name| (number, name)));
        }
    }

    /// Names that were not told before.
    pub fn new_owners(&mut self) -> Option<Owners> {
        let new = mem::take(&mut self.new);
        (new != Owners::default()).then_some(new)
    }
}

/// Whether this process may read what is open by its path alone.
fn may_read(file: OwnedFd) -> bool {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS) != Err(Errno::ACCESS)
}
