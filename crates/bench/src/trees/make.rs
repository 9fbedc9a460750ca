//! Creates a tree on the disk.

use super::draw::{DrawnEntry, DrawnKind, Tree, bytes};
use anyhow::Context as _;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chmod,
    chownat, link, lsetxattr, mknodat, symlink, utimensat,
};
use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::{ffi::OsStrExt as _, fs::FileExt as _},
    path::{Path, PathBuf},
};

/// Creates `tree` at `root`, which must not exist.
///
/// Modes and times of directories are set last, from the deepest on. Otherwise no entry could be created in some
/// directories, and each new entry would change the time of its directory.
///
/// # Errors
/// When an entry cannot be created; the error has its path.
pub fn make(tree: &Tree, root: &Path) -> anyhow::Result<()> {
    // A file is created before its other names.
    let is_name = |entry: &DrawnEntry| matches!(entry.kind, DrawnKind::SameAs(_));
    let firsts = tree.entries.iter().filter(|(_, entry)| !is_name(entry));
    let names = tree.entries.iter().filter(|(_, entry)| is_name(entry));
    for (path, entry) in firsts.chain(names) {
        let at = place(root, path);
        create(entry, &at, root).with_context(|| format!("cannot create {}", at.display()))?;
    }
    // Other names share the attributes of the file.
    let own = tree.entries.iter().filter(|(_, entry)| !is_name(entry));
    for (path, entry) in own.rev() {
        let at = place(root, path);
        describe(entry, &at)
            .with_context(|| format!("cannot set the attributes of {}", at.display()))?;
    }
    Ok(())
}

/// The path of an entry on the disk.
pub fn place(root: &Path, path: &[u8]) -> PathBuf {
    if path.is_empty() { root.to_owned() } else { root.join(OsStr::from_bytes(path)) }
}

fn create(entry: &DrawnEntry, at: &Path, root: &Path) -> anyhow::Result<()> {
    match &entry.kind {
        DrawnKind::Directory => fs::create_dir(at)?,
        DrawnKind::File { length, data, seed } => {
            let file = File::create_new(at)?;
            file.set_len(*length)?;
            for (from, to) in data {
                file.write_all_at(&bytes(*seed, *from, *to), *from)?;
            }
        }
        DrawnKind::SameAs(first) => link(place(root, first), at)?,
        DrawnKind::Link(text) => symlink(OsStr::from_bytes(text), at)?,
        DrawnKind::LinkInside(path) => {
            symlink(fs::canonicalize(root)?.join(OsStr::from_bytes(path)), at)?
        }
        DrawnKind::Fifo => mknodat(CWD, at, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?,
        DrawnKind::Socket => mknodat(CWD, at, FileType::Socket, Mode::RUSR | Mode::WUSR, 0)?,
    }
    Ok(())
}

/// Sets the owner first, which clears set-ID bits, then the mode, then ACLs and other attributes, then the time.
fn describe(entry: &DrawnEntry, at: &Path) -> anyhow::Result<()> {
    if let Some((user, group)) = entry.owner {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        chownat(CWD, at, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW).context("owner")?;
    }
    let is_link = matches!(entry.kind, DrawnKind::Link(_) | DrawnKind::LinkInside(_));
    if !is_link {
        chmod(at, Mode::from_raw_mode(entry.mode)).context("mode")?;
    }
    for (name, value) in &entry.xattrs {
        lsetxattr(at, *name, value, XattrFlags::empty()).with_context(|| (*name).to_owned())?;
    }
    let (tv_sec, tv_nsec) = (entry.modified.0, entry.modified.1.into());
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec, tv_nsec },
    };
    utimensat(CWD, at, &times, AtFlags::SYMLINK_NOFOLLOW).context("time")
}
