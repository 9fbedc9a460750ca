//! Optional fields of an entry: extended attributes, access control lists, holes, and the names of users and groups.

use crate::{
    acl::{self, AclSubject},
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
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
};
use thalweg_base::descriptors::path_of;
use thalweg_wire::object::{ExtraMetadata, Keep, Owners};

/// The most users, and the most groups, whose names are looked up; others are sent by id only.
const MAX_OWNERS: usize = 10_000;

/// The fields of stat(2) that [`Describer`] uses.
#[derive(Clone, Copy, Debug)]
pub struct FileStat {
    kind: FileType,
    user: u32,
    group: u32,
    size: u64,
    is_sparse: bool,
}

impl From<&Stat> for FileStat {
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

impl From<&Metadata> for FileStat {
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

/// Reads the requested optional fields of entries.
#[derive(Debug)]
pub struct Describer {
    keep: Keep,
    /// Users that were looked up already.
    users: BTreeSet<u32>,
    /// Groups that were looked up already.
    groups: BTreeSet<u32>,
    /// Names that [`Self::new_owners`] has not returned yet.
    new: Owners,
}

impl Describer {
    /// Creates a describer that reads the fields in `keep`.
    pub fn new(keep: Keep) -> Self {
        let (users, groups, new) = (BTreeSet::new(), BTreeSet::new(), Owners::default());
        Self { keep, users, groups, new }
    }

    /// Reads the optional fields of a file; `None` if it has none. `read` opens the file for reading, `itself` with
    /// `O_PATH`.
    ///
    /// # Errors
    /// If the file cannot be opened or its extended attributes cannot be read.
    pub fn describe(
        &mut self,
        found: FileStat,
        read: impl FnOnce() -> Option<OwnedFd>,
        itself: impl Fn() -> Result<OwnedFd, Errno>,
    ) -> Result<Option<Box<ExtraMetadata>>, Errno> {
        if self.keep.has(Keep::NAMES) {
            self.look_up_user(found.user);
            self.look_up_group(found.group);
        }
        let is_file = found.kind == FileType::RegularFile;
        let mut more = ExtraMetadata::default();
        if is_file && self.keep.has(Keep::HOLES) && found.is_sparse {
            // A file without read permission is reported later, when its content is read.
            more.holes = Some(read().map(|file| holes::of(file, found.size)).unwrap_or_default());
        }
        if is_file && self.keep.has(Keep::READABLE) {
            more.is_unreadable = !may_read(itself()?);
        }
        let is_asked = self.keep.has(Keep::XATTRS) || self.keep.has(Keep::ACLS);
        if is_asked && (is_file || found.kind == FileType::Directory) {
            more.xattrs = xattr::read(itself()?, self.keep)?;
            self.look_up_listed(&more);
        }
        Ok((more != ExtraMetadata::default()).then(|| Box::new(more)))
    }

    /// Looks up the names of the users and groups in its access control lists.
    fn look_up_listed(&mut self, more: &ExtraMetadata) {
        if !self.keep.has(Keep::NAMES) {
            return;
        }
        for list in more.xattrs.iter().filter(|xattr| xattr::is_list(&xattr.name)) {
            for who in acl::named_subjects(&list.value) {
                match who {
                    AclSubject::User(id) => self.look_up_user(id),
                    AclSubject::Group(id) => self.look_up_group(id),
                }
            }
        }
    }

    fn look_up_user(&mut self, id: u32) {
        if self.users.len() < MAX_OWNERS && self.users.insert(id) {
            self.new.users.extend(names::user(id).map(|name| (id, name)));
        }
    }

    fn look_up_group(&mut self, id: u32) {
        if self.groups.len() < MAX_OWNERS && self.groups.insert(id) {
            self.new.groups.extend(names::group(id).map(|name| (id, name)));
        }
    }

    /// Returns the names found since the last call.
    pub fn new_owners(&mut self) -> Option<Owners> {
        let new = mem::take(&mut self.new);
        (new != Owners::default()).then_some(new)
    }
}

/// Whether this process may read a file opened with `O_PATH`.
fn may_read(file: OwnedFd) -> bool {
    accessat(CWD, path_of(&file), Access::READ_OK, AtFlags::EACCESS) != Err(Errno::ACCESS)
}
