//! Small files: written under a temporary name in the same directory, then renamed.

use super::{
    batch::Batches,
    plan::{Content, Target, temporary},
    state::LandingState,
    step_error::{StepError, error_text},
    tree::{DirectoryCache, OpenDirectory},
};
use rustix::{
    fs::{AtFlags, Mode, OFlags, futimens, openat, symlinkat, unlinkat},
    io::Errno,
};
use std::{
    collections::BTreeMap,
    fs::File,
    os::{fd::AsFd, unix::fs::FileExt},
    sync::{Arc, LazyLock},
};
use thalweg_part::{Ranges, holes};
use thalweg_wire::object::Keep;

/// The mode bits that open(2) does not set on a new file.
static MASK: LazyLock<u32> = LazyLock::new(thalweg_part::umask);

/// The small files of one thread.
pub(super) struct SmallFiles {
    shared: Arc<LandingState>,
    holds: DirectoryCache,
    /// Files that arrive in several pieces, with the ranges received.
    begun: BTreeMap<u32, Ranges>,
}

impl SmallFiles {
    pub(super) fn new(shared: &Arc<LandingState>) -> Self {
        let holds = DirectoryCache::new(&shared.tree);
        Self { shared: Arc::clone(shared), holds, begun: BTreeMap::new() }
    }

    /// Writes a piece; a file that is complete then goes into the batch.
    pub(super) fn write(
        &mut self,
        number: u32,
        at: u64,
        bytes: &[u8],
        batches: &Batches,
    ) -> Result<(), StepError> {
        let shared = Arc::clone(&self.shared);
        let Some(target) = shared.target(number) else { return Ok(()) };
        let size = target.size();
        let range = at..at.saturating_add(bytes.len() as u64);
        if range.end > size {
            return Err(StepError::One("data past its end was received".into()));
        }
        let new = match self.begun.get(&number) {
            None if range == (0..size) => {
                let hold = self.hold(target)?;
                make_file(&shared, &hold, number, target, bytes)?;
                size
            }
            _ => self.put(number, target, at, bytes)?,
        };
        shared.record_written(number, new);
        let whole = self.begun.get(&number).is_none_or(|there| there.prefix() == size);
        if whole {
            self.begun.remove(&number);
            batches.add_small(number, size);
        }
        Ok(())
    }

    /// Writes one of several pieces. Returns the number of new bytes.
    fn put(
        &mut self,
        number: u32,
        target: &Target,
        at: u64,
        bytes: &[u8],
    ) -> Result<u64, StepError> {
        let shared = Arc::clone(&self.shared);
        let hold = self.hold(target)?;
        let is_begun = self.begun.contains_key(&number);
        let file = match is_begun {
            true => reopen(&shared, &hold, number),
            false => create(&shared, &hold, number, Mode::RUSR | Mode::WUSR),
        };
        let file = file.map_err(|e| shared.plan.classify_error("create", e))?;
        let written = match target.holes() {
            Some(_) if !is_begun => file.set_len(target.size()),
            _ => Ok(()),
        };
        let write = |()| match target.holes() {
            Some(_) => holes::write(&file, at, bytes),
            None => file.write_all_at(bytes, at),
        };
        written.and_then(write).map_err(|e| shared.plan.classify_error("write", errno(&e)))?;
        let there = self.begun.entry(number).or_default();
        let before = there.total();
        there.insert(at..at + bytes.len() as u64);
        if there.prefix() == target.size() {
            put_xattrs(&shared, number, target, &file);
            target
                .attributes
                .put(&file)
                .map_err(|e| shared.plan.classify_error("set mode and time of", e))?;
        }
        Ok(there.total() - before)
    }

    fn hold(&mut self, target: &Target) -> Result<Arc<OpenDirectory>, StepError> {
        let hold = self.holds.get(&self.shared.plan, target.directory);
        hold.map_err(|e| self.shared.plan.classify_error("open the directory of", e))
    }

    /// Gives up a file that will not be completed.
    pub(super) fn forget(&mut self, number: u32) {
        if self.begun.remove(&number).is_some() {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u32) {
        let Some(target) = self.shared.target(number) else { return };
        let hold = self.holds.get(&self.shared.plan, target.directory);
        let name = temporary(self.shared.tag, number);
        // Best effort; a later session also looks for leftovers.
        _ = hold.and_then(|hold| unlinkat(hold, name, AtFlags::empty()));
    }

    /// Removes incomplete small files; they are not resumed.
    pub(super) fn end(&mut self) {
        while let Some((number, _)) = self.begun.pop_first() {
            self.remove(number);
        }
    }
}

/// Writes a complete file under its temporary name.
pub(super) fn make_file(
    shared: &LandingState,
    hold: &OpenDirectory,
    number: u32,
    target: &Target,
    bytes: &[u8],
) -> Result<(), StepError> {
    let mode = u32::from(target.attributes.mode);
    let has_more = shared.plan.keep != Keep::default();
    // Setting attributes requires read and write permission.
    let first = if has_more { Mode::RUSR | Mode::WUSR } else { Mode::from_raw_mode(mode & 0o777) };
    let file =
        create(shared, hold, number, first).map_err(|e| shared.plan.classify_error("create", e))?;
    let written = holes::write_new(&file, bytes, target.holes().is_some());
    let mut done = written.map_err(|e| errno(&e));
    if done.is_ok() {
        put_xattrs(shared, number, target, &file);
        let as_made = hold.is_plain && !has_more && mode & (*MASK | 0o7000) == 0 && is_own(target);
        done = if as_made {
            futimens(&file, &target.attributes.times())
        } else {
            target.attributes.put(&file).map(drop)
        };
    }
    done.map_err(|e| {
        // Best effort: the first error is the one to report.
        _ = unlinkat(hold, temporary(shared.tag, number), AtFlags::empty());
        shared.plan.classify_error("write", e)
    })
}

/// Sets the kept extended attributes and access control lists. An error is recorded, but the file still counts as
/// collected.
pub(super) fn put_xattrs(shared: &LandingState, number: u32, target: &Target, file: impl AsFd) {
    if let Err(error) = target.metadata(shared.plan.keep).put_xattrs(file) {
        let what = "set extended attributes or access control lists of";
        shared.record_blemish(number, error_text(what, error));
    }
}

/// Creates a link or an empty file under its temporary name.
pub(super) fn make(
    shared: &LandingState,
    hold: &OpenDirectory,
    number: u32,
    target: &Target,
) -> Result<(), StepError> {
    let Content::Link(to) = &target.content else {
        return make_file(shared, hold, number, target, b"");
    };
    let name = temporary(shared.tag, number);
    let made = replacing_leftover(hold, shared, number, || symlinkat(to.as_slice(), hold, &name));
    made.map(|()| target.attributes.put_on_link(hold, &name))
        .map_err(|e| shared.plan.classify_error("create", e))
}

/// Whether a new file gets the right owner and group.
fn is_own(target: &Target) -> bool {
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    target.attributes.owner.matches(own)
}

fn create(
    shared: &LandingState,
    hold: &OpenDirectory,
    number: u32,
    mode: Mode,
) -> Result<File, Errno> {
    // Writing a sparse file reads the current content of partial blocks.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let name = temporary(shared.tag, number);
    replacing_leftover(hold, shared, number, || openat(hold, &name, flags, mode)).map(File::from)
}

/// Retries after deleting an existing file of that name: it is a leftover, because this landing holds the lock.
fn replacing_leftover<T>(
    hold: &OpenDirectory,
    shared: &LandingState,
    number: u32,
    mut make: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match make() {
        Err(Errno::EXIST) => {
            unlinkat(hold, temporary(shared.tag, number), AtFlags::empty())?;
            make()
        }
        done => done,
    }
}

fn reopen(shared: &LandingState, hold: &OpenDirectory, number: u32) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(hold, temporary(shared.tag, number), flags, Mode::empty()).map(File::from)
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
