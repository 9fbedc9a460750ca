//! Answers listings: walks directories below the requested paths, holds one directory open at a time, and reports the
//! entries in several replies.

use super::{
    Requester,
    pattern::{Excludes, MatchState, Pattern},
    root::{Root, failure, modified, snapshot, stat_in},
    sender::{Buffer, DataSource, FillDeadline},
    session::peer_key,
};
use rustix::{
    fs::{Dir, FileType, Stat},
    io::Errno,
};
use std::{
    mem,
    os::fd::{AsFd as _, OwnedFd},
    time::{Duration, Instant},
};
use thalweg_base::budget::PeerKey;
use thalweg_part::describe::Describer;
use thalweg_wire::object::{
    self, DescribedEntry, Entry, Failure, FilePath, Keep, Kind, ListRequest, MAX_WHY, Reply,
};

/// The most entries of one reply: 50 kB with names of 80 bytes.
const MAX_ENTRIES: usize = 200;

/// The most bytes of one reply, give or take an entry: far below [`object::MAX_REPLY`], and the size that the buffer is
/// made for.
const MAX_BYTES: usize = 128 * 1024;

/// The most bytes of an entry beside its names.
const ENTRY_OVERHEAD: usize = 100;

/// The longest time without a message to the peer.
const MAX_SILENCE: Duration = Duration::from_secs(5);

/// The most failures that are named. Of further failures only the number is reported.
const MAX_FAILURES: usize = 200;

/// The most bytes of all named failures, which are sent in one reply.
const MAX_FAILURE_BYTES: usize = 512 * 1024;

/// The most bytes of a failure's path. No file has a longer path below an offered directory, but a requested path may
/// be as long as a request.
const MAX_FAILED_PATH: usize = 8192;

/// The answer to a [`ListRequest`].
#[derive(Debug)]
pub(super) struct Listing {
    requester: Requester,
    /// Adds optional fields to entries; `None` if none are requested.
    describer: Option<Describer>,
    roots: std::vec::IntoIter<Vec<u8>>,
    /// The next root's number.
    number: u32,
    excludes: Excludes,
    walk: Option<Walk>,
    /// Entries that are not reported yet.
    entries: Vec<Entry>,
    /// The number of entries at the beginning of `entries` whose length is included in `bytes`.
    counted: usize,
    bytes: usize,
    failures: Vec<(Vec<u8>, Failure)>,
    failed_bytes: usize,
    unnamed: u64,
    /// When the last message was sent.
    last_message: Instant,
}

/// The walk below one root.
#[derive(Debug)]
struct Walk {
    number: u32,
    /// The path as requested.
    requested: Vec<u8>,
    root: Root,
    /// The prefix of paths as exclude patterns see them: the name of the requested directory, and `/`.
    above: Vec<u8>,
    pattern: Option<Pattern>,
    /// Directories still to be read; the last one is read next.
    pending: Vec<PendingDirectory>,
    open: Option<OpenDirectory>,
    /// The last directory above a match that was reported; the directories above it were reported too.
    reported: Vec<u8>,
    found: bool,
}

#[derive(Debug)]
struct PendingDirectory {
    path: Vec<u8>,
    /// How far the path has matched the pattern; `None` if everything below is listed.
    state: Option<MatchState>,
}

#[derive(Debug)]
struct OpenDirectory {
    at: PendingDirectory,
    directory: OwnedFd,
    entries: Dir,
}

impl Listing {
    /// Lists these paths, with the metadata that `keep` requests. Rights are checked first, so no pattern is compiled
    /// for a peer that may read none of the paths.
    pub fn new(
        requester: Requester,
        request: ListRequest,
        keep: Option<Keep>,
    ) -> Result<Self, Failure> {
        let may = |requested: &Vec<u8>| {
            requester.offers().readable(&requester.member, object::base(requested)).is_ok()
        };
        let excludes = match request.roots.iter().any(may) {
            true => Excludes::new(&request.exclude)?,
            false => Excludes::default(),
        };
        let (entries, failures) = (Vec::new(), Vec::new());
        let roots = request.roots.into_iter();
        Ok(Self {
            requester,
            describer: keep.map(Describer::new),
            roots,
            number: 0,
            excludes,
            walk: None,
            entries,
            counted: 0,
            bytes: 0,
            failures,
            failed_bytes: 0,
            unnamed: 0,
            last_message: Instant::now(),
        })
    }

    /// Begins a root: adds the entry of the requested path itself. `None` if it is not a directory, or excluded.
    fn begin(&mut self, requested: Vec<u8>) -> Result<Option<Walk>, Failure> {
        let base = object::base(&requested).to_vec();
        let (place, below) = self.requester.offers().readable(&self.requester.member, &base)?;
        let (offered, below) = (Root::open(&place.path)?, below.to_vec());
        let below = &below[..];
        let pattern = object::pattern(&requested).map(|parts| Pattern::new(&parts)).transpose()?;
        let number = self.number;
        let failed = |e| failure(&base, e);
        if pattern.is_none() && !requested.ends_with(b"/") && !below.is_empty() {
            let found = offered.stat(below).map_err(failed)?;
            let name = base.rsplit(|b| *b == b'/').next().unwrap_or_default();
            if self.excludes.leaves_out(name, is_directory(&found)) {
                return Ok(None);
            }
            let link = || offered.link(below);
            let mut entry = entry(number, Vec::new(), &found, link).map_err(failed)?;
            self.describe(&offered, below, &base, &found, &mut entry);
            self.entries.push(entry);
            if !is_directory(&found) {
                return Ok(None);
            }
        }
        let root = offered.directory(below).map_err(failed)?;
        if pattern.is_none() && (requested.ends_with(b"/") || below.is_empty()) {
            let found = root.stat(b"").map_err(failed)?;
            let mut entry = entry(number, Vec::new(), &found, no_link).map_err(failed)?;
            self.describe(&root, b"", &base, &found, &mut entry);
            self.entries.push(entry);
        }
        let above = match pattern.is_some() || requested.ends_with(b"/") {
            true => Vec::new(),
            false => above(&base),
        };
        let state = pattern.as_ref().map(Pattern::start);
        let pending = vec![PendingDirectory { path: Vec::new(), state }];
        let (open, reported, found) = (None, Vec::new(), pattern.is_none());
        Ok(Some(Walk { number, requested, root, above, pattern, pending, open, reported, found }))
    }

    /// Adds the requested optional fields to an entry. If that fails, the failure is reported, and the entry is listed
    /// without them.
    fn describe(
        &mut self,
        root: &Root,
        below: &[u8],
        path: &[u8],
        found: &Stat,
        entry: &mut Entry,
    ) {
        let Some(describer) = &mut self.describer else { return };
        if let Err(e) = describe(describer, root, below, found, entry) {
            self.fail(path.to_vec(), failure(path, e));
        }
    }

    fn fail(&mut self, mut path: Vec<u8>, why: Failure) {
        path.truncate(MAX_FAILED_PATH);
        let why = why.cut(MAX_WHY);
        let bytes = path.len() + why.text_len() + ENTRY_OVERHEAD;
        let has_room = self.failed_bytes + bytes <= MAX_FAILURE_BYTES;
        if has_room && self.failures.len() < MAX_FAILURES {
            self.failed_bytes += bytes;
            self.failures.push((path, why));
        } else {
            self.unnamed += 1;
        }
    }

    /// Does one step: begins or ends a root, opens a directory, or looks at an entry. Returns false if everything is
    /// listed.
    fn step(&mut self) -> bool {
        let Some(mut walk) = self.walk.take() else {
            let Some(requested) = self.roots.next() else { return false };
            match self.begin(requested.clone()) {
                Ok(walk) => self.walk = walk,
                Err(why) => self.fail(requested, why),
            }
            self.number += 1;
            return true;
        };
        if walk.open.is_none() && walk.pending.is_empty() {
            if !walk.found {
                let why = Failure::System("nothing there matches the pattern".into());
                self.fail(walk.requested, why);
            }
            return true;
        }
        if let Err((path, e)) = walk.step(&self.excludes, &mut self.describer, &mut self.entries) {
            let path = [object::base(&walk.requested), b"/", &path].concat();
            let why = failure(&path, e);
            self.fail(path, why);
        }
        self.walk = Some(walk);
        true
    }

    /// Whether the entries fill a reply.
    fn is_due(&mut self) -> bool {
        let uncounted = self.entries.get(self.counted..).unwrap_or_default();
        self.bytes += uncounted.iter().map(length).sum::<usize>();
        self.counted = self.entries.len();
        self.counted >= MAX_ENTRIES || self.bytes >= MAX_BYTES
    }

    /// Reports the first entries, as many as fit into a reply. Returns false if there were none.
    fn report_entries(&mut self, buffer: &mut Buffer) -> bool {
        let mut bytes = 0;
        let fits = self.entries.iter().take(MAX_ENTRIES).take_while(|entry| {
            let is_first = bytes == 0;
            bytes += length(entry);
            is_first || bytes <= MAX_BYTES
        });
        let fits = fits.count();
        let rest = self.entries.split_off(fits);
        (self.counted, self.bytes) = (0, 0);
        let part = mem::replace(&mut self.entries, rest);
        if part.is_empty() {
            return false;
        }
        let Some(describer) = &mut self.describer else {
            buffer.append_reply(&Reply::Entries(part));
            return true;
        };
        describer
            .new_owners()
            .into_iter()
            .for_each(|owners| buffer.append_reply(&Reply::Owners(owners)));
        buffer.append_reply(&Reply::Described(part.into_iter().map(DescribedEntry).collect()));
        true
    }

    fn end(&mut self, buffer: &mut Buffer) {
        if self.unnamed > 0 {
            let why = Failure::System(format!("and {} more like these", self.unnamed));
            self.failures.push((Vec::new(), why));
        }
        buffer.append_reply(&Reply::Listed(mem::take(&mut self.failures)));
    }
}

impl DataSource for Listing {
    /// Listing costs more than reading: it walks whole disks and compares each path with all patterns.
    fn charged_peer(&self) -> Option<PeerKey> {
        Some(peer_key(&self.requester.member))
    }

    fn fill(&mut self, buffer: &mut Buffer, until: &FillDeadline) -> bool {
        while buffer.room() > 0 {
            // One step can find as many entries as a path has components.
            if self.is_due() {
                self.report_entries(buffer);
                continue;
            }
            if !self.step() {
                if self.report_entries(buffer) {
                    continue;
                }
                self.end(buffer);
                return false;
            }
            if until.is_over() {
                break;
            }
        }
        if buffer.is_empty() && self.last_message.elapsed() > MAX_SILENCE {
            self.report_entries(buffer);
            buffer.append_reply(&Reply::Wait);
        }
        if !buffer.is_empty() {
            self.last_message = Instant::now();
        }
        true
    }
}

impl Walk {
    /// Looks at the next entry of the open directory, or opens the next directory.
    fn step(
        &mut self,
        excludes: &Excludes,
        describer: &mut Option<Describer>,
        entries: &mut Vec<Entry>,
    ) -> Result<(), (Vec<u8>, Errno)> {
        let Some(mut open) = self.open.take() else {
            let Some(at) = self.pending.pop() else { return Ok(()) };
            self.open = Some(self.open_directory(at)?);
            return Ok(());
        };
        match open.entries.read() {
            None => Ok(()),
            Some(Err(e)) => Err((open.at.path, e)),
            Some(Ok(next)) => {
                let name = next.file_name();
                let looked = match name.to_bytes() {
                    b"." | b".." => Ok(()),
                    _ => self.visit(&open, name, excludes, describer, entries),
                };
                self.open = Some(open);
                looked
            }
        }
    }

    fn open_directory(&self, at: PendingDirectory) -> Result<OpenDirectory, (Vec<u8>, Errno)> {
        let opened = self.root.entries(&at.path).and_then(|directory| {
            let entries = Dir::read_from(directory.as_fd())?;
            Ok((directory, entries))
        });
        match opened {
            Ok((directory, entries)) => Ok(OpenDirectory { at, directory, entries }),
            Err(e) => Err((at.path, e)),
        }
    }

    fn visit(
        &mut self,
        open: &OpenDirectory,
        name: &std::ffi::CStr,
        excludes: &Excludes,
        describer: &mut Option<Describer>,
        entries: &mut Vec<Entry>,
    ) -> Result<(), (Vec<u8>, Errno)> {
        let bytes = name.to_bytes();
        let state = match (&self.pattern, open.at.state) {
            (Some(pattern), Some(state)) => match pattern.step(state, bytes) {
                Some(next) => Some(next),
                None => return Ok(()),
            },
            _ => None,
        };
        let path = joined(&open.at.path, bytes);
        let found = match stat_in(&open.directory, name) {
            // It was removed since its directory was read.
            Err(Errno::NOENT) => return Ok(()),
            found => found.map_err(|e| (path.clone(), e))?,
        };
        let is_directory = is_directory(&found);
        if !excludes.is_empty()
            && excludes.leaves_out(&[&self.above[..], &path].concat(), is_directory)
        {
            return Ok(());
        }
        let is_met = state.is_none_or(|state| self.is_met(state));
        // If the optional fields cannot be read, the entry and everything below it are still listed.
        let mut result = Ok(());
        if is_met {
            self.found = true;
            if state.is_some() {
                self.report_above(&path, entries);
            }
            let link = || self.root.link(&path);
            let mut entry =
                entry(self.number, path.clone(), &found, link).map_err(|e| (path.clone(), e))?;
            let described = describer.as_mut().map_or(Ok(()), |describer| {
                describe(describer, &self.root, &path, &found, &mut entry)
            });
            entries.push(entry);
            result = described.map_err(|e| (path.clone(), e));
        }
        if is_directory {
            self.pending.push(PendingDirectory { path, state: state.filter(|_| !is_met) });
        }
        result
    }

    fn is_met(&self, state: MatchState) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.is_met(state))
    }

    /// Reports the directories above a match, each once: a walk does not come back to a directory that it has left.
    fn report_above(&mut self, path: &[u8], entries: &mut Vec<Entry>) {
        let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        for above in ends.map(|end| &path[..end]) {
            let is_reported =
                self.reported.strip_prefix(above).is_some_and(|r| r.is_empty() || r[0] == b'/');
            if is_reported {
                continue;
            }
            // The peer creates a directory without an entry with default attributes.
            let found = self.root.stat(above).ok();
            let found = found.and_then(|f| entry(self.number, above.to_vec(), &f, no_link).ok());
            entries.extend(found);
            self.reported = above.to_vec();
        }
    }
}

/// Adds the requested optional fields to the entry of the file at `path` below `root`.
fn describe(
    describer: &mut Describer,
    root: &Root,
    path: &[u8],
    found: &Stat,
    entry: &mut Entry,
) -> Result<(), Errno> {
    let read = || root.file(path).ok().map(|(file, _)| file);
    entry.more = describer.describe(found.into(), read, || root.open_item(path))?;
    Ok(())
}

/// The last name of a path followed by `/`: `dir/` for `/data/dir`.
fn above(base: &[u8]) -> Vec<u8> {
    match base.rsplit(|b| *b == b'/').next() {
        Some(name) if !name.is_empty() => [name, b"/"].concat(),
        _ => Vec::new(),
    }
}

fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    match path.is_empty() {
        true => name.to_vec(),
        false => [path, b"/", name].concat(),
    }
}

/// The most bytes of an entry in a reply.
fn length(entry: &Entry) -> usize {
    let target = match &entry.kind {
        Kind::Symlink { target } => target.len(),
        _ => 0,
    };
    let more = entry.more.as_ref().map_or(0, |more| more.memory());
    entry.path.as_bytes().len() + target + more + ENTRY_OVERHEAD
}

fn is_directory(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Directory
}

fn no_link() -> Result<Vec<u8>, Errno> {
    Err(Errno::INVAL)
}

fn entry(
    root: u32,
    path: Vec<u8>,
    found: &Stat,
    link: impl FnOnce() -> Result<Vec<u8>, Errno>,
) -> Result<Entry, Errno> {
    let kind = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Kind::File { snapshot: snapshot(found) },
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink { target: link()? },
        _ => Kind::Special,
    };
    Ok(Entry {
        root,
        path: FilePath::new(path).map_err(|_| Errno::NAMETOOLONG)?,
        kind,
        mode: (found.st_mode & 0o7777) as u16,
        owner: found.st_uid,
        group: found.st_gid,
        modified: modified(found),
        more: None,
    })
}
