//! Creates hard links to delivered files.

use super::{Destination, Directory, Obstacle, TemporaryNames, put::sync_names};
use crate::{Requester, root::failure, sample, store::Inbox};
use rustix::{
    fs::{FileType, Mode, OFlags, fstat, openat},
    io::Errno,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::File,
    os::unix::ffi::OsStrExt as _,
    sync::Arc,
};
use thalweg_part::hard_link::{self, EntryName};
use thalweg_wire::object::{FailedEntries, Failure, Link, Links, Rules};

/// Creates hard links, or only reports which would fail. Returns how many exist already and which failed. Waits for
/// the disk.
///
/// The member has to prove with a hash that it has the file. Otherwise it could link a file that another member left
/// in a directory without read access into a directory that it may read.
///
/// # Errors
/// [`Failure::NotOffered`] if the member may not write to the directory.
pub(crate) fn link(
    inbox: &Inbox,
    requester: &Requester,
    request: &Links,
) -> Result<(u64, FailedEntries), Failure> {
    let Links { into, rules, links, make } = request;
    let destination = Destination::new(requester, into)?.with_rules(*rules);
    let paths: Vec<_> = links.iter().map(|link| destination.path(link.name.as_bytes())).collect();
    let _claim = inbox.claims.wait(destination.accepting_path()?, &paths);
    let mut linker = Linker {
        destination,
        rules: *rules,
        make: *make,
        changed: BTreeSet::new(),
        devices: BTreeMap::new(),
        names: &inbox.names,
        present: 0,
    };
    let (mut undone, mut made) = (FailedEntries::default(), Vec::new());
    for (number, link) in (0..).zip(links) {
        let idle = inbox.check_idle(&linker.destination.path(link.name.as_bytes()));
        match idle.and_then(|()| linker.link(link)) {
            Ok(true) => made.push(number),
            Ok(false) => linker.present += 1,
            Err(why) => undone.add(number, why),
        }
    }
    let Linker { mut destination, changed, devices, present, .. } = linker;
    if let Err(e) = sync_names(&mut destination, changed, &devices) {
        let why = Failure::System(format!("cannot sync its directory there: {e}"));
        made.into_iter().for_each(|number| undone.add(number, why.clone()));
    }
    Ok((present, undone))
}

struct Linker<'a> {
    destination: Destination<'a>,
    rules: Rules,
    make: bool,
    /// Directories in which links were created.
    changed: BTreeSet<Vec<u8>>,
    devices: BTreeMap<u64, Arc<Directory>>,
    names: &'a TemporaryNames,
    present: u64,
}

impl Linker<'_> {
    /// Creates a link. Returns false if it exists already.
    fn link(&mut self, link: &Link) -> Result<bool, Failure> {
        let (above, name) = self.destination.split_path(link.name.as_bytes())?;
        let to = self.directory(above)?;
        let (above_first, first) = self.destination.split_path(link.first.as_bytes())?;
        let from = self.directory(above_first)?;
        let Some(directory) = to else { return self.accept_missing() };
        let to = &*directory;
        let new = EntryName { directory: to, name: OsStr::from_bytes(name) };
        let existing = new.stat().map_err(|e| failure(name, e))?;
        let missing = |linker: &Self| {
            existing.map_or(Ok(()), |found| Obstacle::new(to, name, found).check(linker.rules))?;
            linker.accept_missing()
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
        let is_same = is_file
            && u64::try_from(found.st_size) == Ok(link.size)
            && sample::digest(&file, link.size, false).is_ok_and(|check| check == link.check);
        if !is_same && !self.make {
            // A sent file may replace it.
            return missing(self);
        }
        if !is_same {
            let why = "the file to link to is missing there or has other content";
            return Err(Failure::System(why.to_owned()));
        }
        let known = EntryName { directory: from, name: OsStr::from_bytes(first) };
        if let Some(existing) = existing {
            if hard_link::is_same_file(&existing, &found) {
                return Ok(false);
            }
            let obstacle = Obstacle::new(to, name, existing);
            obstacle.check(self.rules)?;
            if self.make {
                obstacle.remove_directory(self.destination.requester, self.rules)?;
            }
        }
        if self.make {
            let charge = to.room_for(existing.as_ref(), 0)?;
            let put = hard_link::create(known, &found, new, &self.names.temporary(name));
            put.map_err(|e| failure(name, e))?;
            charge.keep();
            if existing.is_some() {
                to.quota.record_removal();
            }
            self.changed.insert(above.to_vec());
            self.devices.entry(to.device).or_insert(Arc::clone(&directory));
        }
        Ok(true)
    }

    /// Opens a directory below the target; `None` if it is missing, or if in a dry run something else has its name.
    fn directory(&mut self, below: &[u8]) -> Result<Option<Arc<Directory>>, Failure> {
        match self.destination.directory(below, false) {
            // A sent directory will replace it; its own entry reports whether that is allowed.
            Err(_) if !self.make && self.destination.obstacle(below)?.is_some() => Ok(None),
            found => found,
        }
    }

    /// Handles a missing file to link to: an error, except in a dry run, where it may still be sent.
    fn accept_missing(&self) -> Result<bool, Failure> {
        match self.make {
            false => Ok(true),
            true => {
                let why = "the file to link to was not delivered";
                Err(Failure::System(why.to_owned()))
            }
        }
    }
}
