//! What of the plan is here already. Changes nothing.

use super::{
    Failed, Listed, OpenError, Sums,
    plan::{Plan, Target, What},
    tree::{Holds, Tree},
    trouble::{said, said_of_part},
};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat, openat, readlinkat, statat},
    io::Errno,
};
use std::{collections::BTreeMap, fs::File, ops::Range};
use thalweg_part::Part;
use thalweg_units::ByteSize;
use thalweg_wire::object::FileRef;

/// Hashes asked for at once.
const ASKED: usize = 256;

/// How a directory was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Here,
    Absent,
    /// Something else is in its place, or it cannot be read.
    Refused,
}

/// What is to be done about a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing, but for its mode, owner and time if they differ.
    Keep {
        differs: bool,
    },
    /// It is made here: an empty file, a link.
    Make,
    /// It is to be fetched, all of it.
    Fetch,
    /// A large file of which a session before left these bytes, as it says.
    GoOn {
        missing: Vec<Range<u64>>,
    },
    /// The same size: the content's hash will tell.
    Ask,
    Refused(String),
}

/// By the plan's indices.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) places: Vec<Place>,
    pub(super) fates: Vec<Fate>,
    pub(super) failed: Vec<Failed>,
}

impl Survey {
    /// Looks at everything. Without `tree` nothing is here.
    pub(super) fn of(
        plan: &Plan,
        listed: &[Listed],
        tree: Option<&Tree>,
        sums: Option<&dyn Sums>,
    ) -> Self {
        let Some(tree) = tree else { return Self::nothing(plan) };
        let mut looker = Looker {
            plan,
            holds: Holds::of(tree),
            places: Vec::new(),
            failed: Vec::new(),
            by_sum: sums.is_some(),
        };
        plan.directories.iter().enumerate().for_each(|(i, _)| looker.directory(i));
        let mut fates: Vec<Fate> = plan.targets.iter().map(|t| looker.target(t)).collect();
        if let Some(sums) = sums {
            looker.compare(listed, &mut fates, sums);
        }
        Self { places: looker.places, fates, failed: looker.failed }
    }

    fn nothing(plan: &Plan) -> Self {
        let places = vec![Place::Absent; plan.directories.len()];
        Self { places, fates: plan.targets.iter().map(new).collect(), failed: Vec::new() }
    }

    /// Refuses now rather than late what cannot fit: a file that does not fit alone, so that what one
    /// source says of one file does not end the others' collection; and all, if the rest does not
    /// fit together.
    ///
    /// # Errors
    /// [`OpenError::DiskFull`].
    pub(super) fn make_room(&mut self, plan: &Plan, tree: &Tree) -> Result<(), OpenError> {
        let Some(free) = free(tree) else { return Ok(()) };
        let mut needed: u64 = 0;
        for (fate, target) in self.fates.iter_mut().zip(&plan.targets) {
            let alone = needed_by(fate, target);
            if alone > free {
                *fate = Fate::Refused(too_large(alone, free));
            } else {
                needed = needed.saturating_add(alone);
            }
        }
        if needed <= free {
            return Ok(());
        }
        let (needed, free) = (ByteSize::from_bytes(needed), ByteSize::from_bytes(free));
        Err(OpenError::DiskFull { into: plan.into.clone(), needed, free })
    }
}

/// Bytes that the filesystem must have room for, in blocks of 4 KiB.
fn needed_by(fate: &Fate, target: &Target) -> u64 {
    match fate {
        Fate::Fetch => target.size().checked_next_multiple_of(4096).unwrap_or(u64::MAX),
        Fate::GoOn { missing } => missing.iter().map(|r| r.end - r.start).sum(),
        _ => 0,
    }
}

fn too_large(needed: u64, free: u64) -> String {
    let (needed, free) = (ByteSize::from_bytes(needed), ByteSize::from_bytes(free));
    format!(
        "it needs {needed} here, and {free} are free; free some space and run the same command \
         again"
    )
}

/// Bytes free for us; `None` if the filesystem does not say.
pub(super) fn free(tree: &Tree) -> Option<u64> {
    let s = rustix::fs::fstatvfs(tree.first()).ok()?;
    let blocks = if rustix::process::geteuid().is_root() { s.f_bfree } else { s.f_bavail };
    // Some of FUSE say 0 of 0.
    blocks.checked_mul(s.f_frsize).filter(|_| s.f_blocks > 0)
}

/// What is done about a target that is not here.
fn new(target: &Target) -> Fate {
    if target.size() == 0 { Fate::Make } else { Fate::Fetch }
}

struct Looker<'a> {
    plan: &'a Plan,
    holds: Holds,
    places: Vec<Place>,
    failed: Vec<Failed>,
    by_sum: bool,
}

impl Looker<'_> {
    fn directory(&mut self, number: usize) {
        let place = match self.look(number) {
            Ok(place) => place,
            Err(why) => {
                if let Some(directory) = self.plan.directories.get(number) {
                    let (source, path) = (directory.source, self.plan.below(number as u32));
                    self.failed.push(Failed { source, path, why });
                }
                Place::Refused
            }
        };
        self.places.push(place);
    }

    fn look(&mut self, number: usize) -> Result<Place, String> {
        let Some(directory) = self.plan.directories.get(number).filter(|_| number > 0) else {
            return Ok(Place::Here);
        };
        match self.places.get(directory.parent as usize) {
            Some(Place::Here) => {}
            // Told of the one above, and enough.
            other => return Ok(other.copied().unwrap_or(Place::Refused)),
        }
        let above = self.holds.get(self.plan, directory.parent).map_err(|e| said("open", e))?;
        match statat(above, &directory.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(Place::Absent),
            Err(other) => Err(said("look at", other)),
            Ok(found) => match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => Ok(Place::Here),
                other => Err(format!(
                    "it is {} here and a directory there; move it away or choose another directory",
                    called(other)
                )),
            },
        }
    }

    fn target(&mut self, target: &Target) -> Fate {
        match self.places.get(target.directory as usize) {
            Some(Place::Here) => {}
            Some(Place::Absent) => return new(target),
            _ => return Fate::Refused("its directory cannot be used".into()),
        }
        self.find(target).unwrap_or_else(Fate::Refused)
    }

    fn find(&mut self, target: &Target) -> Result<Fate, String> {
        let hold = self
            .holds
            .get(self.plan, target.directory)
            .map_err(|e| said("open the directory of", e))?;
        let found = match statat(&hold, &target.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Some(found),
            Err(Errno::NOENT) => None,
            Err(other) => return Err(said("look at", other)),
        };
        let kind = found.map(|found| FileType::from_raw_mode(found.st_mode));
        match (kind, &target.what) {
            (Some(FileType::Directory), _) => Err(
                "it is a directory here and none there; move it away or choose another directory"
                    .into(),
            ),
            (Some(FileType::Symlink), What::Link(to)) => {
                let here =
                    readlinkat(&hold, &target.name, Vec::new()).map_err(|e| said("read", e))?;
                let differs = found.is_some_and(|found| differs(target, &found, true));
                Ok(if here.as_bytes() == to { Fate::Keep { differs } } else { Fate::Make })
            }
            (Some(FileType::RegularFile), What::File(_)) => self.same(target, found),
            _ => self.begun(target),
        }
    }

    /// A file under the name of a file.
    fn same(&mut self, target: &Target, found: Option<Stat>) -> Result<Fate, String> {
        let Some(found) = found else { return self.begun(target) };
        let same_size = u64::try_from(found.st_size) == Ok(target.size());
        let same_time = modified(&found) == target.attributes.modified();
        match (same_size, self.by_sum && target.size() > 0) {
            (true, true) => Ok(Fate::Ask),
            (true, false) if same_time => {
                Ok(Fate::Keep { differs: differs(target, &found, false) })
            }
            _ => self.begun(target),
        }
    }

    /// A target whose content is not here, but perhaps a part of it.
    fn begun(&mut self, target: &Target) -> Result<Fate, String> {
        if !target.is_file() || target.is_small() {
            return Ok(new(target));
        }
        let hold = self
            .holds
            .get(self.plan, target.directory)
            .map_err(|e| said("open the directory of", e))?;
        let Some(key) = self.plan.key(target) else { return Ok(new(target)) };
        let kept = Part::kept(&hold.path(&target.name), &key);
        let kept = kept.map_err(|e| said_of_part(&e))?;
        Ok(match kept {
            None => Fate::Fetch,
            Some(kept) => Fate::GoOn { missing: kept.missing(target.size()) },
        })
    }

    /// Settles what hashes must tell.
    fn compare(&mut self, listed: &[Listed], fates: &mut [Fate], sums: &dyn Sums) {
        let mut asked: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (number, (fate, target)) in fates.iter().zip(&self.plan.targets).enumerate() {
            if *fate == Fate::Ask {
                asked.entry(target.source).or_default().push(number);
            }
        }
        for (source, numbers) in asked {
            for numbers in numbers.chunks(ASKED) {
                let files: Vec<FileRef> = numbers
                    .iter()
                    .filter_map(|n| reference(listed, self.plan.targets.get(*n)?))
                    .collect();
                let said = sums.sums(source, &files);
                let mut said = said.into_iter();
                for number in numbers {
                    let there = said.next().and_then(Result::ok).map(|check| check.0);
                    if let (Some(fate), Some(target)) =
                        (fates.get_mut(*number), self.plan.targets.get(*number))
                    {
                        *fate = self.judge(target, there);
                    }
                }
            }
        }
    }

    /// A source that does not say is fetched from, and then says why not.
    fn judge(&mut self, target: &Target, there: Option<[u8; 32]>) -> Fate {
        let Some(there) = there else { return self.begun(target).unwrap_or_else(Fate::Refused) };
        match self.sum(target) {
            Ok(here) if here == there => Fate::Keep { differs: true },
            Ok(_) => self.begun(target).unwrap_or_else(Fate::Refused),
            Err(why) => Fate::Refused(format!("cannot read it: {why}")),
        }
    }

    fn sum(&mut self, target: &Target) -> std::io::Result<[u8; 32]> {
        let hold = self.holds.get(self.plan, target.directory)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(hold, &target.name, flags, Mode::empty())?);
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(file)?;
        Ok(hasher.finalize().into())
    }
}

/// A target as its source knows it.
pub(super) fn reference(listed: &[Listed], target: &Target) -> Option<FileRef> {
    let What::File(snapshot) = target.what else { return None };
    let of = listed.get(target.origin.listed as usize)?;
    let entry = of.entries.get(target.origin.entry as usize)?;
    let root = of.roots.get(entry.root as usize)?.clone();
    Some(FileRef { root, path: entry.path.clone(), snapshot })
}

/// Seconds since 1970 and ns.
pub(super) fn modified(found: &Stat) -> (i64, i64) {
    (found.st_mtime, found.st_mtime_nsec as i64)
}

/// Whether what is kept besides the content is another. Links have no mode of their own.
pub(super) fn differs(target: &Target, found: &Stat, is_link: bool) -> bool {
    let wanted = &target.attributes;
    let mode = is_link || found.st_mode & 0o7777 == u32::from(wanted.mode);
    let owner = wanted.owner.is_none_or(|owner| owner == (found.st_uid, found.st_gid));
    !(mode && owner && modified(found) == wanted.modified())
}

fn called(kind: FileType) -> &'static str {
    match kind {
        FileType::Symlink => "a symbolic link",
        FileType::RegularFile => "a file",
        _ => "a device, socket or pipe",
    }
}
