//! What has the name of an entry and is something else: whether it gives way, and how.
//!
//! The rule is rsync's: everything gives way but a directory that is not empty, which needs `--delete`.

use super::{Directory, clear::remove_all, not_allowed};
use crate::{beneath::failure, offer::May};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat, unlinkat},
    io::Errno,
};
use std::{ffi::OsStr, os::fd::AsFd, os::unix::ffi::OsStrExt as _};
use thalweg_wire::object::{Failure, Rules};

/// What is at a name in an open directory.
pub(crate) struct Obstacle<'a, D> {
    directory: &'a D,
    name: &'a [u8],
    found: Stat,
}

impl<'a> Obstacle<'a, Directory> {
    pub(super) fn new(directory: &'a Directory, name: &'a [u8], found: Stat) -> Self {
        Self { directory, name, found }
    }

    /// Checks that it may be replaced by something of another kind or content. Changes nothing.
    pub(super) fn check(&self, rules: Rules) -> Result<(), Failure> {
        self.check_in(rules, self.directory.may, &self.directory.path)
    }

    /// Checks it, and removes it: for what is not put in its place by a rename.
    pub(super) fn give_way(&self, rules: Rules) -> Result<(), Failure> {
        self.check(rules)?;
        self.remove(rules)
    }
}

impl<'a, D: AsFd> Obstacle<'a, D> {
    /// What is at this name; `None` if nothing is.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn find(directory: &'a D, name: &'a [u8]) -> Result<Option<Self>, Errno> {
        match statat(directory, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(Self { directory, name, found })),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether a file in the making takes its place without further ado.
    pub(crate) fn is_replaced_by_parts(&self) -> bool {
        matches!(self.kind(), FileType::RegularFile | FileType::Symlink)
    }

    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.found.st_mode)
    }

    fn is_directory(&self) -> bool {
        self.kind().is_dir()
    }

    /// Checks it by the rights `may` in the directory at `path`.
    pub(crate) fn check_in(&self, rules: Rules, may: May, path: &[u8]) -> Result<(), Failure> {
        let system = |why: String| Err(Failure::System(why));
        if !rules.has(Rules::REPLACE) {
            return system(format!(
                "{}; nothing is replaced here: remove it there, or take another name, or `--replace`",
                self.described()
            ));
        }
        if !may.replace {
            return Err(not_allowed(path, "other content for a name that is there", "replace"));
        }
        if !self.is_directory() || self.is_empty().map_err(|e| failure(self.name, e))? {
            return Ok(());
        }
        if !rules.has(Rules::REMOVE) {
            let why = "a directory that is not empty is there, and no directory here: remove it there, or use `--delete`";
            return system(why.to_owned());
        }
        match may.remove {
            true => Ok(()),
            false => Err(not_allowed(path, "removal of what is there", "remove")),
        }
    }

    /// Removes it if it is a directory, which no rename of a file replaces: with all in it if the rules say so.
    pub(super) fn remove_directory(&self, rules: Rules) -> Result<(), Failure> {
        if self.is_directory() { self.remove(rules) } else { Ok(()) }
    }

    /// Removes it: a directory with all in it if the rules say so.
    pub(crate) fn remove(&self, rules: Rules) -> Result<(), Failure> {
        let name = OsStr::from_bytes(self.name);
        let removed = match (self.is_directory(), rules.has(Rules::REMOVE)) {
            (false, _) => unlinkat(self.directory, name, AtFlags::empty()),
            (true, false) => unlinkat(self.directory, name, AtFlags::REMOVEDIR),
            (true, true) => remove_all(self.directory, self.name),
        };
        match removed {
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
            FileType::Directory => "a directory of this name is there already",
            FileType::RegularFile | FileType::Symlink => "is there already, with other content",
            _ => "a device, socket or pipe of this name is there already",
        }
    }
}
