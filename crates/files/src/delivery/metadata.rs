//! The end of a delivery: sets the modes and times of directories, the deepest first.

use super::{
    Destination, UNFINISHED, check_replacement, creator, leftovers, metadata_of, xattr_bytes,
};
use crate::{Requester, offer::StoreRights, root::failure, store::Inbox};
use rustix::{
    fs::{FileType, Mode, OFlags, Stat, fstat, futimens, openat},
    io::Errno,
};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
use thalweg_part::Attributes;
use thalweg_wire::object::{Delivery, DescribedEntry, Entry, FailedEntries, Failure, Kind, Rules};

/// The mode bits of group and others, which show content to more users than the directory's owner.
const OTHERS: u32 = 0o077;

/// Sets the modes and times of directories, and of existing files that differ only in these. Returns the entries that
/// failed, and the directories that keep an earlier mode that is wider than requested.
///
/// # Errors
/// [`Failure::NotOffered`]: nothing was changed.
pub(crate) fn apply_metadata(
    inbox: &Inbox,
    requester: &Requester,
    delivery: &Delivery,
) -> Result<(FailedEntries, FailedEntries), Failure> {
    let Delivery { into, rules, entries, .. } = delivery;
    let mut destination = Destination::new(requester, into)?.with_rules(*rules);
    let (mut undone, mut wider) = (FailedEntries::default(), FailedEntries::default());
    for (number, DescribedEntry(entry)) in (0..).zip(entries) {
        let done = match &entry.kind {
            Kind::Directory => apply_directory_metadata(inbox, &mut destination, *rules, entry),
            Kind::File { .. } => {
                apply_file_metadata(&mut destination, *rules, entry).map(|()| None)
            }
            _ => Ok(None),
        };
        match done {
            Ok(None) => {}
            Ok(Some(mode)) => {
                let why = format!("it existed before and keeps its mode {mode:o}");
                wider.add(number, Failure::System(why));
            }
            Err(why) => undone.add(number, why),
        }
    }
    Ok((undone, wider))
}

/// Sets a directory's mode and time. Returns the mode that it keeps, if that shows it to more users than the sender's
/// mode.
fn apply_directory_metadata(
    inbox: &Inbox,
    destination: &mut Destination<'_>,
    rules: Rules,
    entry: &Entry,
) -> Result<Option<u32>, Failure> {
    let below = entry.path.as_bytes();
    destination.split_path(below)?;
    let failed = |e| failure(below, e);
    let Some(directory) = destination.open(below, None)? else { return Err(failed(Errno::NOENT)) };
    leftovers::remove(&directory, &inbox.names, &inbox.claims, inbox.since);
    let found = fstat(&directory).map_err(failed)?;
    let (is, wanted) = (found.st_mode & 0o7777, u32::from(entry.mode & 0o777));
    let may = directory.depth > 0
        && may_change(directory.may, rules, &found, wanted, || {
            creator::may_finish(&directory, destination.requester)
        });
    let metadata = metadata_of(entry, rules, directory.may);
    if may {
        let charge = directory.quota.take(&directory, xattr_bytes(entry), 0)?;
        metadata.put_xattrs(&directory).map_err(failed)?;
        charge.keep();
        // The set-group bit is this host's choice: new files get the directory's group.
        let mode = (wanted | is & 0o2000) as u16;
        Attributes { mode, ..metadata.attributes }.put(&directory).map_err(failed)?;
        creator::remove(&directory);
    } else if directory.depth > 0 {
        // The time of another user's directory cannot be set; it keeps its time as well as its mode.
        _ = futimens(&directory, &metadata.attributes.times());
    }
    Ok((!may && is & OTHERS & !wanted != 0).then_some(is & 0o777))
}

/// Whether the sender may change a directory's mode. A new directory has no mode yet and gets it from the member that
/// made it (`is_mine`). An existing one keeps the permissions that it gives to others, unless the settings allow this
/// member to replace it. The mode of the accepting directory itself is never changed.
pub(super) fn may_change(
    may: StoreRights,
    rules: Rules,
    found: &Stat,
    wanted: u32,
    is_mine: impl FnOnce() -> bool,
) -> bool {
    let is = found.st_mode & 0o7777;
    let is_new = is & 0o1777 == UNFINISHED;
    let shows_the_same = is & OTHERS == wanted & OTHERS && is & 0o1000 == 0;
    if is_new { is_mine() } else { shows_the_same || may.replaces(rules) }
}

fn apply_file_metadata(
    destination: &mut Destination<'_>,
    rules: Rules,
    entry: &Entry,
) -> Result<(), Failure> {
    let (above, name) = destination.split_path(entry.path.as_bytes())?;
    let failed = |e| failure(name, e);
    let Some(directory) = destination.directory(above, false)? else {
        return Err(failed(Errno::NOENT));
    };
    let what = "other modes and times";
    check_replacement(&directory.path, what, directory.may)?;
    if !rules.has(Rules::REPLACE) {
        return Err(super::not_allowed(&directory.path, what, "replace"));
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&directory, OsStr::from_bytes(name), flags, Mode::empty()).map_err(failed)?;
    if !FileType::from_raw_mode(fstat(&file).map_err(failed)?.st_mode).is_file() {
        return Err(failed(Errno::INVAL));
    }
    let charge = directory.quota.take(&directory, xattr_bytes(entry), 0)?;
    metadata_of(entry, rules, directory.may).put_by_path(file).map_err(failed)?;
    charge.keep();
    Ok(())
}
