//! Further names of files that were delivered.

use super::{Bay, Directory, kept::temporary, put::sync_names};
use crate::{Reader, beneath::failure, sample, store::Inbox};
use rustix::{
    fs::{FileType, Mode, OFlags, Stat, fstat, openat},
    io::Errno,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::File,
    os::unix::ffi::OsStrExt as _,
    sync::Arc,
};
use thalweg_part::hard_link::{self, Name};
use thalweg_wire::object::{Failure, Link, Links, Rules, Undone};

/// Gives files further names, or says which they would not get; how many are there already. Waits for the disk.
///
/// Who gives a file a name proves to know what is in it: a name in a directory that may be read would else show what
/// another member left in one that may not.
///
/// # Errors
/// [`Failure::NotOffered`] for all.
pub(crate) fn link(
    inbox: &Inbox,
    reader: &Reader,
    wanted: &Links,
) -> Result<(u64, Undone), Failure> {
    let Links { into, rules, links, make } = wanted;
    let bay = Bay::of(reader, into)?;
    let paths = links.iter().map(|link| bay.path(link.name.as_bytes())).collect();
    let _claim = inbox.claims.wait(paths);
    let mut linker = Linker {
        bay,
        rules: *rules,
        make: *make,
        named: BTreeSet::new(),
        devices: BTreeMap::new(),
        present: 0,
    };
    let (mut undone, mut made) = (Undone::default(), Vec::new());
    for (number, link) in (0..).zip(links) {
        match linker.one(link) {
            Ok(true) => made.push(number),
            Ok(false) => linker.present += 1,
            Err(why) => undone.add(number, why),
        }
    }
    let Linker { mut bay, named, devices, present, .. } = linker;
    if let Err(e) = sync_names(&mut bay, named, &devices) {
        let why = Failure::System(format!("cannot sync its directory there: {e}"));
        made.into_iter().for_each(|number| undone.add(number, why.clone()));
    }
    Ok((present, undone))
}

struct Linker<'a> {
    bay: Bay<'a>,
    rules: Rules,
    make: bool,
    /// Directories in which names were given.
    named: BTreeSet<Vec<u8>>,
    devices: BTreeMap<u64, Arc<Directory>>,
    present: u64,
}

impl Linker<'_> {
    /// False: it is there already.
    fn one(&mut self, link: &Link) -> Result<bool, Failure> {
        let (above, name) = self.bay.parts(link.name.as_bytes())?;
        let to = self.bay.directory(above, false)?;
        let (above_first, first) = self.bay.parts(link.first.as_bytes())?;
        let from = self.bay.directory(above_first, false)?;
        let Some(directory) = to else { return self.expected() };
        let to = &*directory;
        let new = Name { directory: to, name: OsStr::from_bytes(name) };
        let there = new.look().map_err(|e| failure(name, e))?;
        let kind = |there: Stat| FileType::from_raw_mode(there.st_mode);
        let missing = |linker: &Self| {
            there.map_or(Ok(()), |there| linker.may_give_way(to, kind(there)))?;
            linker.expected()
        };
        let Some(from) = from else { return missing(self) };
        let from = &*from;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(from, OsStr::from_bytes(first), flags, Mode::empty()) {
            Err(Errno::NOENT) => return missing(self),
            opened => opened.map_err(|e| failure(first, e))?,
        };
        let file = File::from(file);
        let found = fstat(&file).map_err(|e| failure(first, e))?;
        let is_file = FileType::from_raw_mode(found.st_mode).is_file();
        let is_meant = is_file
            && u64::try_from(found.st_size) == Ok(link.size)
            && sample::digest(&file, link.size, false).is_ok_and(|check| check == link.check);
        if !is_meant {
            let why = "the file that it is another name of is not there with this content";
            return Err(Failure::System(why.to_owned()));
        }
        let known = Name { directory: from, name: OsStr::from_bytes(first) };
        if let Some(there) = there {
            if hard_link::is_one(&there, &found) {
                return Ok(false);
            }
            self.may_give_way(to, kind(there))?;
        }
        if self.make {
            let put = hard_link::put(known, &found, new, &temporary(name));
            put.map_err(|e| failure(name, e))?;
            self.named.insert(above.to_vec());
            self.devices.entry(to.device).or_insert(Arc::clone(&directory));
        }
        Ok(true)
    }

    /// Before anything is sent, what is not there may come.
    fn expected(&self) -> Result<bool, Failure> {
        match self.make {
            false => Ok(true),
            true => {
                let why = "the file that it is another name of did not come";
                Err(Failure::System(why.to_owned()))
            }
        }
    }

    fn may_give_way(&self, directory: &Directory, there: FileType) -> Result<(), Failure> {
        if !matches!(there, FileType::RegularFile | FileType::Symlink) {
            let why = "something that is no file of this name is there already";
            return Err(Failure::System(why.to_owned()));
        }
        if !self.rules.has(Rules::REPLACE) {
            let why = "another file of this name is there already, and nothing is replaced: \
                       remove it there, or `--replace`";
            return Err(Failure::System(why.to_owned()));
        }
        if !directory.may.replace {
            let what = "other files for names that are there";
            return Err(super::not_allowed(directory, what, "replace"));
        }
        Ok(())
    }
}
