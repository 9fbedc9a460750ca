//! Obstacles: items that have the name of an entry but another kind or content.
//!
//! The rule is rsync's: every obstacle may be replaced, except that a directory that is not empty requires `--delete`.

use super::{
    Directory, Protected, check_removal, check_replacement,
    clear::{check_all, kept_in_settings, remove_all},
};
use crate::{Requester, offer::StoreRights, root::failure};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat, unlinkat},
    io::Errno,
};
use std::{ffi::OsStr, os::fd::AsFd, os::unix::ffi::OsStrExt as _};
use thalweg_wire::object::{Failure, Rules};

/// The item with a name in an open directory.
pub(crate) struct Obstacle<'a, D> {
    directory: &'a D,
    name: &'a [u8],
    found: Stat,
}

impl<'a> Obstacle<'a, Directory> {
    pub(super) fn new(directory: &'a Directory, name: &'a [u8], found: Stat) -> Self {
        Self { directory, name, found }
    }

    /// Checks that it may be replaced by an item of another kind or content. Changes nothing.
    pub(super) fn check(&self, rules: Rules) -> Result<(), Failure> {
        self.check_in(rules, self.directory.may, &self.directory.path)
    }

    /// Checks that nothing in it is protected. Changes nothing.
    pub(super) fn check_content(&self, requester: &Requester) -> Result<(), Failure> {
        if !self.is_directory() {
            return Ok(());
        }
        check_all(&Protected::of(requester), self.directory, &self.directory.path, self.name)
    }

    /// Checks and removes it, for a replacement that is not made by rename.
    pub(super) fn make_way(&self, requester: &Requester, rules: Rules) -> Result<(), Failure> {
        self.check(rules)?;
        self.remove_counted(requester, rules)
    }

    /// Removes it if it is a directory, because renaming a file does not replace one. The content is removed if the
    /// rules allow it.
    pub(super) fn remove_directory(
        &self,
        requester: &Requester,
        rules: Rules,
    ) -> Result<(), Failure> {
        if !self.is_directory() {
            return Ok(());
        }
        self.remove_counted(requester, rules)
    }

    /// Removes it and tells the quota, also after an error: part of a directory's content may be gone.
    fn remove_counted(&self, requester: &Requester, rules: Rules) -> Result<(), Failure> {
        let removed = self.remove(&Protected::of(requester), rules, &self.directory.path);
        self.directory.quota.record_removal();
        removed
    }
}

impl<'a, D: AsFd> Obstacle<'a, D> {
    /// Returns the item with this name; `None` if there is none.
    ///
    /// # Errors
    /// Any system error.
    pub(crate) fn find(directory: &'a D, name: &'a [u8]) -> Result<Option<Self>, Errno> {
        match statat(directory, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(Self { directory, name, found })),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether a part of a file replaces it without a check.
    pub(crate) fn is_replaced_by_parts(&self) -> bool {
        matches!(self.kind(), FileType::RegularFile | FileType::Symlink)
    }

    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.found.st_mode)
    }

    fn is_directory(&self) -> bool {
        self.kind().is_dir()
    }

    /// Checks it with the rights `may` in the directory at `path`.
    pub(crate) fn check_in(
        &self,
        rules: Rules,
        may: StoreRights,
        path: &[u8],
    ) -> Result<(), Failure> {
        let system = |why: String| Err(Failure::System(why));
        if !rules.has(Rules::REPLACE) {
            return system(format!(
                "{}; it is not replaced: remove it there, choose another name, or use `--replace`",
                self.described()
            ));
        }
        check_replacement(path, "replacements", may)?;
        if !self.is_directory() || self.is_empty().map_err(|e| failure(self.name, e))? {
            return Ok(());
        }
        if !rules.has(Rules::REMOVE) {
            let why = "a directory with this name exists there and is not empty: remove it there, \
                       or use `--delete` without `--exclude`";
            return system(why.to_owned());
        }
        check_removal(path, may)
    }

    /// Removes it: a directory with its content if the rules allow it, unless something in it is protected. `path` is
    /// the absolute path of the parent directory.
    pub(crate) fn remove(
        &self,
        protected: &Protected<'_>,
        rules: Rules,
        path: &[u8],
    ) -> Result<(), Failure> {
        if self.is_directory() && protected.is_configured(&self.found) {
            return Err(kept_in_settings());
        }
        let name = OsStr::from_bytes(self.name);
        let flags = match (self.is_directory(), rules.has(Rules::REMOVE)) {
            (true, true) => return remove_all(protected, self.directory, path, self.name),
            (true, false) => AtFlags::REMOVEDIR,
            (false, _) => AtFlags::empty(),
        };
        match unlinkat(self.directory, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(failure(self.name, e)),
        }
    }

    fn is_empty(&self) -> Result<bool, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(self.directory, OsStr::from_bytes(self.name), flags, Mode::empty())?;
        for entry in Dir::read_from(opened)? {
            if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn described(&self) -> &'static str {
        match self.kind() {
            FileType::Directory => "a directory with this name exists there",
            FileType::RegularFile | FileType::Symlink => {
                "a file or link with this name and other content exists there"
            }
            _ => "a device, socket or pipe with this name exists there",
        }
    }
}
